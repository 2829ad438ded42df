"""torch.compile goes through Stator.   stator.install(); torch.compile(model)  ->  stator.compile(model)

In: a process whose libraries call torch.compile (also as a decorator, or as `module.compile()`), torch.compiler's
functions and torch._dynamo's.  Out: the same calls, answered by Stator, until `uninstall()`.  What was compiled before
stays what it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from stator import api
from stator.capture.compiled_module import pose_as_torchs
from stator.installation import symbolic_trace, torch_artifacts, torch_compile, torch_names
from stator.installation.torch_compile import is_operator_of_torch
from stator.installation.torch_config import in_torchs_config
from stator.settings.process_config import config

__all__ = ["install", "is_installed", "is_operator_of_torch", "uninstall"]

_lock = threading.Lock()
_replaced: dict[str, Any] = {}  # torch's own functions, while Stator's are in their place: "compile", "compiler.reset"
_BY_NAME = ("allow_in_graph", "assume_constant_result", "disable", "substitute_in_graph")

_AROUND: dict[str, Callable[..., Any]] = {  # functions of torch.compiler that do more than torch's own
    "save_cache_artifacts": torch_artifacts.saving_caches, "load_cache_artifacts": torch_artifacts.loading_caches,
    "load_compiled_function": torch_artifacts.load_compiled_function}


def install(backend: str | Callable[..., Any] | None = None) -> None:
    """From now on torch.compile is Stator's; `backend` is what calls that name none, or "inductor", get instead."""
    with _lock:
        if not _replaced:
            _replaced["compile"] = torch.compile
            _replaced.update({f"compiler.{name}": getattr(torch.compiler, name)
                              for name in ("reset", "set_stance", "list_backends", *_BY_NAME, *_AROUND)
                              if hasattr(torch.compiler, name)})
        torch.compile = torch_compile.replacement(_replaced["compile"], backend)
        api.makes_compiled(torch.compile)
        torch.compiler.reset = torch_names.resetting(_replaced["compiler.reset"])
        torch.compiler.set_stance = torch_names.set_stance
        torch.compiler.list_backends = torch_names.list_backends  # type: ignore[assignment]
        for name, around in _AROUND.items():
            if f"compiler.{name}" in _replaced:
                setattr(torch.compiler, name, around(_replaced[f"compiler.{name}"]))
        for name in _BY_NAME:
            setattr(torch.compiler, name, getattr(api, name))
        torch_names.replace()
        symbolic_trace.replace()
        pose_as_torchs(True)
        config.follow(in_torchs_config)


def uninstall() -> None:
    """torch.compile is torch's own again; what Stator has compiled stays compiled."""
    with _lock:
        for name, original in _replaced.items():
            holder: Any = torch.compiler if name.startswith("compiler.") else torch
            setattr(holder, name.removeprefix("compiler."), original)
        _replaced.clear()
        torch_compile.forget()
        torch_names.put_back()
        symbolic_trace.put_back()
        pose_as_torchs(False)
        config.follow(None)


def is_installed() -> bool:
    """Whether torch.compile goes through Stator."""
    return bool(_replaced)
