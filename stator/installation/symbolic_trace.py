"""torch.fx.Tracer.trace with a compiled function as its root.   torch.fx.symbolic_trace(torch.compile(f))

In: torch's own method.  Out: the method that takes compiled functions and modules, too: it raises torch's error, or
traces the original where `torch._dynamo.config.error_on_nested_fx_trace` is False.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.fx

from stator.installation.torch_config import in_torchs_config
from stator.settings import marks

Function = Callable[..., Any]
_originals: list[Function] = []  # torch's own method, while Stator's is in its place


def replace() -> None:
    if not _originals:
        _originals.append(torch.fx.Tracer.trace)
        torch.fx.Tracer.trace = tracing(_originals[0])  # type: ignore[method-assign]


def put_back() -> None:
    if _originals:
        torch.fx.Tracer.trace = _originals.pop()  # type: ignore[method-assign]


def tracing(original: Function) -> Function:
    @functools.wraps(original)
    def trace(tracer: torch.fx.Tracer, root: Function, concrete_args: object = None) -> torch.fx.Graph:
        return original(tracer, original_of(root), concrete_args)  # type: ignore[no-any-return]

    return trace


def original_of(root: Function) -> Function:
    """The function or module that `root` was compiled from; `root` itself where it was not compiled."""
    if marks.compiled_mark(root) is None:
        return root
    if in_torchs_config("error_on_nested_fx_trace", True):
        raise RuntimeError("Detected that you are using FX to symbolically trace a dynamo-optimized function. "
                           "This is not supported at the moment.")
    name = "_orig_mod" if isinstance(root, torch.nn.Module) else "__wrapped__"
    return marks.attributes_of(root)[name]  # type: ignore[no-any-return]
