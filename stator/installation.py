"""torch.compile goes through Stator.   stator.install(); torch.compile(model)  ->  stator.compile(model)

In: a process whose libraries call torch.compile (also as a decorator, or as `module.compile()`) and torch.compiler's
functions.  Out: the same calls, answered by Stator, until `uninstall()`.  What was compiled before stays what it was.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from stator import api
from stator.backends.registry import find_backend, refuse_tuning
from stator.capture.compiled_module import pose_as_torchs
from stator.errors import OptionValueError, Unsupported
from stator.settings.options import split_options
from stator.settings.process_config import config
from stator.settings.stance import set_stance as stance_of

_lock = threading.Lock()
_replaced: dict[str, Any] = {}  # torch's own functions, while Stator's are in their place: "compile", "compiler.reset"
_operators: dict[Any, Any] = {}  # what was made of torch's own operators, by their code
_TURN_OFF = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")  # variables of the environment
_BY_NAME = ("allow_in_graph", "assume_constant_result", "disable", "list_backends", "substitute_in_graph")


def install(backend: str | Callable[..., Any] | None = None) -> None:
    """From now on torch.compile is Stator's; `backend` is what calls that name none, or "inductor", get instead."""
    with _lock:
        if not _replaced:
            _replaced["compile"] = torch.compile
            _replaced.update({f"compiler.{name}": getattr(torch.compiler, name)
                              for name in ("reset", "set_stance", *_BY_NAME)})
        torch.compile = _torch_compile(_replaced["compile"], backend)
        api.makes_compiled(torch.compile)
        torch.compiler.reset = _torch_reset(_replaced["compiler.reset"])
        torch.compiler.set_stance = _torch_set_stance(_replaced["compiler.set_stance"])
        for name in _BY_NAME:
            setattr(torch.compiler, name, getattr(api, name))
        pose_as_torchs(True)
        config.follow(_in_torchs_config)


def uninstall() -> None:
    """torch.compile is torch's own again; what Stator has compiled stays compiled."""
    with _lock:
        for name, original in _replaced.items():
            holder: Any = torch.compiler if name.startswith("compiler.") else torch
            setattr(holder, name.removeprefix("compiler."), original)
        _replaced.clear()
        _operators.clear()
        pose_as_torchs(False)
        config.follow(None)


def is_installed() -> bool:
    """Whether torch.compile goes through Stator."""
    return bool(_replaced)


def _torch_compile(original: Any, default_backend: object) -> Any:
    @functools.wraps(original)
    def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
                backend: Any = None, mode: str | None = None, options: Any = None, name: str | None = None,
                disable: bool = False, recompile_limit: int | None = None, isolate_recompiles: bool = False,
                shapes_spec: object = None) -> Any:
        if shapes_spec is not None:
            raise OptionValueError("shapes_spec= is not accepted by Stator; mark sizes with stator.mark_dynamic")
        disable = disable or any(os.environ.get(name) == "1" for name in _TURN_OFF)
        if backend in (None, "inductor") and default_backend is not None:
            backend, mode, options = default_backend, None, None
        mode, options = _without_tuning(backend, mode, options)
        key = (model.__code__, backend, fullgraph) if is_operator_of_torch(model) and _has_no_state(model) and (
            isinstance(backend, str) or _has_no_state(backend)) else None
        if key in _operators:  # each call of torch.cond compiles the same few lines anew
            return _operators[key]
        compiled = api.compile(model, fullgraph=fullgraph,
                               dynamic=_dynamic_in_torchs_config() if dynamic is None else dynamic,
                               backend="inductor" if backend is None else backend, mode=mode, options=options,
                               disable=disable, recompile_limit=recompile_limit,
                               isolate_recompiles=isolate_recompiles, name=name)
        if not is_operator_of_torch(model):
            return compiled
        run = _or_by_torch(compiled, functools.partial(original, model, fullgraph=fullgraph, backend=backend))
        if key is not None:
            _operators[key] = run
        return run

    return compile


def _in_torchs_config(name: str, default: Any = None) -> Any:
    """A setting of torch._dynamo.config, where somebody has loaded it: scripts set there what has no argument."""
    return getattr(sys.modules.get("torch._dynamo.config"), name, default)


def _dynamic_in_torchs_config() -> bool | None:
    """As `dynamic=None` is meant there: sizes symbolic from the start, or never."""
    if not _in_torchs_config("assume_static_by_default", True):
        return True
    return None if _in_torchs_config("automatic_dynamic_shapes", True) else False


def is_operator_of_torch(model: object) -> bool:
    """Whether torch compiles one of its operators that take functions, as torch.cond does when it is called."""
    return type(model) is types.FunctionType and str(model.__module__).startswith("torch._higher_order_ops.")


def _has_no_state(fn: Callable[..., Any]) -> bool:
    return type(fn) is types.FunctionType and not (fn.__closure__ or fn.__defaults__ or fn.__kwdefaults__)


def _or_by_torch(compiled: Any, compile_by_torch: Callable[[], Any]) -> Callable[..., Any]:
    """Under a tracer of torch's (make_fx, torch.export, vmap) the operator must be seen by that tracer: Stator captures
    nothing there. What a loop carries may be a number, too. Nothing has run yet where Stator refuses."""
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return compiled(*args, **kwargs)
        except Unsupported:
            pass
        return compile_by_torch()(*args, **kwargs)

    return run


def _without_tuning(backend: object, mode: object, options: Any) -> tuple[Any, Any]:
    """torch ignores a mode and options where its "eager" and the like cannot use them, and says so."""
    if not isinstance(backend, str) or find_backend(backend).check is not refuse_tuning:
        return mode, options
    own, foreign = split_options(options)
    if foreign or mode not in (None, "default"):
        ignored = [f"mode={mode!r}"] if mode not in (None, "default") else []
        ignored += [f"options={foreign!r}"] if foreign else []
        warnings.warn(f"stator: the backend {backend!r} ignores {' and '.join(ignored)}", stacklevel=3)
    return None, own or None


def _torch_reset(original: Any) -> Any:
    @functools.wraps(original)
    def reset() -> None:
        original()
        api.reset()

    return reset


def _torch_set_stance(original: Any) -> Any:
    @functools.wraps(original)
    def set_stance(stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> Any:
        # skip_guard_eval_unsafe asks to leave out checks that cost next to nothing here: they are made.
        return stance_of(stance, force_backend=force_backend)

    return set_stance
