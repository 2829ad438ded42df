"""Scripts that show a difference on their own.   a wrong graph or call  ->  Python text that anyone can run

Values are written out as literals; a tensor that is too large for that is made anew from its metadata, and the script
says so.  What cannot be written out is left as a marked gap.
"""

from __future__ import annotations

import inspect
import textwrap
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from stator.audit.trials import Trials
from stator.heap.blank_instances import CONSTANT_TYPES
from stator.settings.options import Settings

_LARGE = 512  # elements of a tensor that is not written out
_GAP = "...  # build this by hand"


def literal(value: Any) -> str:
    """An expression that makes a value like this one."""
    kind = type(value)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return tensor_literal(value)
    if kind is float and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    if kind in CONSTANT_TYPES:
        return repr(value)
    if kind in (list, tuple):
        parts = ", ".join(map(literal, value))
        return f"[{parts}]" if kind is list else f"({parts}{',' if len(value) == 1 else ''})"
    if kind is dict:
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
    return f"{_GAP[:3]}"


def tensor_literal(tensor: torch.Tensor) -> str:
    plain = tensor.detach()
    tail = ", requires_grad=True" if tensor.requires_grad else ""
    if plain.numel() > _LARGE:
        return f"torch.testing.make_tensor({tuple(plain.shape)}, dtype={plain.dtype}, device='cpu'{tail})  # made anew"
    text = repr(plain.tolist()).replace("nan", "float('nan')").replace("inf", "float('inf')")
    return f"torch.tensor({text}, dtype={plain.dtype}{tail}).reshape({tuple(plain.shape)})" if not tail else \
        f"torch.tensor({text}, dtype={plain.dtype}{tail})"


def graph_script(gm: fx.GraphModule, inputs: tuple[Any, ...], settings: Settings) -> str:
    """Compile one graph with the backend and compare it with itself."""
    code = textwrap.indent(gm.code.strip(), "    ")
    given = "".join(f"    {literal(value)},\n" for value in inputs)
    return (f'"""A graph that the backend {settings.backend_name!r} compiles to something else."""\n'
            f"import torch\nfrom torch import device, fx, inf, nan  # noqa: F401\n\nimport stator\n\n"
            f"{backend_text(settings)}\n\nclass Graph(torch.nn.Module):\n{code}\n\n\n"
            f"inputs = [\n{given}]\ngraph = Graph()\nexpected = graph(*inputs)\n"
            f"compiled = stator.compile(graph.forward, backend=backend, fullgraph=True)(*inputs)\n"
            f"torch.testing.assert_close(compiled, expected)\n")


def backend_text(settings: Settings) -> str:
    if isinstance(settings.backend, str):
        return f"backend = {settings.backend!r}\n"
    backend: Any = settings.backend
    name = getattr(backend, "__name__", "")
    if isinstance(backend, types.FunctionType) and backend.__closure__ is None and name.isidentifier():
        return f"{source_of(backend)}\n\nbackend = {name}\n"
    return f"backend = {_GAP}  (it was {settings.backend_name})\n"


def source_of(function: Callable[..., Any]) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return f"# the source of {getattr(function, '__qualname__', function)} is not known\n"


def call_script(trials: Trials, note: str = "A call that is captured as something else.") -> str:
    """Make the call eagerly and compiled, and compare the results."""
    fn = trials.fn
    function: Any = fn.__func__ if isinstance(fn, types.MethodType) else fn
    args = "".join(f"    {literal(value)},\n" for value in trials.args)
    names = "".join(f"{name!r}: {literal(value)}, " for name, value in trials.kwargs.items())
    helpers = []
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, types.FunctionType) and value.__module__ == function.__module__ and value is not function:
            helpers.append(source_of(value))
        elif name in function.__globals__ and type(value) in (*CONSTANT_TYPES, torch.Tensor, list, dict, tuple):
            helpers.append(f"{name} = {literal(value)}\n")
    made = "\n\n".join(helpers)
    return (f'"""{note}"""\nimport copy\n\nimport torch\n\nimport stator\n\n'
            f"{made}\n\n{source_of(function)}\n\nargs = [\n{args}]\nkwargs = {{{names}}}\n"
            f"eager_args, compiled_args = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))\n"
            f"expected = {function.__name__}(*eager_args[0], **eager_args[1])\n"
            f"compiled = stator.compile({function.__name__}, backend='eager')(*compiled_args[0], **compiled_args[1])\n"
            f"torch.testing.assert_close(compiled, expected)\n"
            f"torch.testing.assert_close(compiled_args, eager_args)\n")
