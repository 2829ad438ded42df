"""Keep what a compiler makes inside AOTAutograd.   a graph  ->  its compiled passes, without the code around them

In: the functions that compilers return to AOTAutograd: forward, backward, inference.  Out: these, for whoever joins
several graphs under one piece of code (`regions/direct_calls.py`).
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._guards import TracingContext

Boxed = Callable[[list[Any]], Any]


@dataclass
class Passes:
    """The passes of one graph: how many inputs each takes, and what runs it."""

    found: dict[str, tuple[int, Boxed]] = field(default_factory=dict)
    doubled: bool = False  # a graph was compiled in several parts
    unrecordable: bool = False  # a CUDA graph cannot hold one of them

    def keep(self, kind: str, inputs: int, function: Any) -> None:
        self.doubled = self.doubled or kind in self.found
        self.found[kind] = inputs, getattr(function, "current_callable", None) or function


_wanted: contextvars.ContextVar[Passes | None] = contextvars.ContextVar("wanted passes", default=None)


@contextlib.contextmanager
def passes_kept() -> Iterator[Passes]:
    passes = Passes()
    token = _wanted.set(passes)
    try:
        yield passes
    finally:
        _wanted.reset(token)


def keep_pass(kind: str, inputs: int, function: object) -> Any:
    """`kind`: "forward", "backward" or "inference"."""
    passes = _wanted.get()
    if passes is not None:
        passes.keep(kind, inputs, function)
    return function


@contextlib.contextmanager
def loaded_passes_kept() -> Iterator[None]:
    """Keep the passes of a graph that AOTAutograd finds in its cache: no compiler is called for them."""
    result: Any = getattr(importlib.import_module("torch._functorch._aot_autograd.aot_autograd_result"),
                          "GenericAOTAutogradResult", None)
    load = getattr(result, "_load_and_post_compile", None)
    if load is None:  # a version of torch that loads them otherwise: only Inductor's own cache is used
        with importlib.import_module("torch._functorch.config").patch(enable_autograd_cache=False):
            yield
        return

    def load_and_keep(found: Any, *args: object) -> Any:
        forward, backward, needs_autograd = load(found, *args)
        meta = found.runtime_metadata
        keep_pass("forward" if needs_autograd else "inference", len(meta.input_info), forward)
        if backward is not None:
            keep_pass("backward", 0, backward)
        TracingContext.get().fw_metadata = meta
        return forward, backward, needs_autograd

    result._load_and_post_compile = load_and_keep
    try:
        yield
    finally:
        result._load_and_post_compile = load


def keeps_passes() -> Passes | None:
    return _wanted.get()


def kernel_address() -> str:
    """Address of the function by which kernels of Inductor find the memory of a tensor."""
    return str(torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr)
