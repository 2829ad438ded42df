"""The function in the place of torch.compile.   torch.compile(model, dynamic=True)  ->  stator.compile(model, ...)

In: torch's own function, and the backend for calls that name none.  Out: a function with torch's signature.
"""

from __future__ import annotations

import functools
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from stator import api
from stator.backends.registry import find_backend, refuse_tuning
from stator.errors import Unsupported
from stator.installation.torch_artifacts import add_aot_compile
from stator.installation.torch_config import dynamic_in_torchs_config, in_torchs_config, say_what_is_ignored
from stator.installation.torch_names import compiled_by_torch
from stator.settings.options import split_options

_operators: dict[Any, Any] = {}  # compiled operators of torch's own, by their code
_TURN_OFF = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")  # variables of the environment


def forget() -> None:
    _operators.clear()


def replacement(original: Any, default_backend: object) -> Any:
    @functools.wraps(original)
    def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
                backend: Any = None, mode: str | None = None, options: Any = None, name: str | None = None,
                disable: bool = False, recompile_limit: int | None = None, isolate_recompiles: bool = False,
                shapes_spec: object = None) -> Any:
        if not is_operator_of_torch(model):  # torch.cond changes settings for a while by itself
            say_what_is_ignored()
        if backend is None:
            backend = default_of_torch()
        if not in_torchs_config("trace_numpy", True):
            options = {"trace_numpy": False, **(options or {})}
        disable = disable or any(os.environ.get(name) == "1" for name in _TURN_OFF)
        if backend in (None, "inductor") and default_backend is not None:
            backend, mode, options = default_backend, None, None
        mode, options = _without_tuning(backend, mode, options)
        key = (model.__code__, backend, fullgraph) if is_operator_of_torch(model) and _has_no_state(model) and (
            isinstance(backend, str) or _has_no_state(backend)) else None
        if key in _operators:  # each call of torch.cond compiles the same few lines anew
            return _operators[key]
        compiled = api.compile(model, fullgraph=fullgraph,
                               dynamic=dynamic_in_torchs_config() if dynamic is shapes_spec is None else dynamic,
                               backend="inductor" if backend is None else backend, mode=mode, options=options,
                               disable=disable, recompile_limit=recompile_limit,
                               isolate_recompiles=isolate_recompiles, name=name, shapes_spec=shapes_spec)
        if not is_operator_of_torch(model):
            return add_aot_compile(compiled)
        run = _or_by_torch(compiled, functools.partial(original, model, fullgraph=fullgraph, backend=backend))
        if key is not None:
            _operators[key] = run
        return run

    return compile


def default_of_torch() -> Any:
    """The backend given to torch.compiler.set_default_backend; None where it is torch's own default."""
    found = getattr(torch.compiler, "get_default_backend", lambda: None)() \
        if "torch._dynamo.backends.registry" in sys.modules else None
    return None if found == "inductor" else found


def is_operator_of_torch(model: object) -> bool:
    """Whether torch compiles one of its operators that take functions, as torch.cond does when it is called."""
    return type(model) is types.FunctionType and str(model.__module__).startswith("torch._higher_order_ops.")


def _has_no_state(fn: Callable[..., Any]) -> bool:
    return type(fn) is types.FunctionType and not (fn.__closure__ or fn.__defaults__ or fn.__kwdefaults__)


def _or_by_torch(compiled: Any, compile_by_torch: Callable[[], Any]) -> Callable[..., Any]:
    """Under another tracer (make_fx, torch.export, vmap) the operator must be seen by that tracer: Stator captures
    nothing there. What a loop carries may be a number, too. Nothing has run yet where Stator refuses."""
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return compiled(*args, **kwargs)
        except Unsupported:
            pass
        with compiled_by_torch():
            return compile_by_torch()(*args, **kwargs)

    return run


def _without_tuning(backend: object, mode: object, options: Any) -> tuple[Any, Any]:
    """torch ignores a mode and options where its "eager" and the like cannot use them, and warns."""
    if not isinstance(backend, str) or find_backend(backend).check is not refuse_tuning:
        return mode, options
    own, foreign = split_options(options)
    if foreign or mode not in (None, "default"):
        ignored = [f"mode={mode!r}"] if mode not in (None, "default") else []
        ignored += [f"options={foreign!r}"] if foreign else []
        warnings.warn(f"stator: the backend {backend!r} ignores {' and '.join(ignored)}", stacklevel=3)
    return None, own or None
