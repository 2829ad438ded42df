"""Tell CUDA graphs where a call begins.   settings  ->  what runs before the graphs of one call, or None

A backend that records CUDA graphs keeps the outputs of one call alive in memory of its own, and takes that memory back
when the next call begins.  It cannot see where that is: torch counts the calls of compiled functions for it, and a
front end that does not count makes every call look like one more step of the first, recorded anew each time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from stator.settings.options import Settings

_WITH_CUDA_GRAPHS = frozenset({"reduce-overhead", "max-autotune"})


def begins_generation(settings: Settings) -> Callable[[], None] | None:
    """The call that marks a new generation, for backends that record CUDA graphs."""
    return begin_generation if records_cuda_graphs(settings) else None


def records_cuda_graphs(settings: Settings) -> bool:
    if settings.backend == "cudagraphs":
        return True
    if settings.backend != "inductor":
        return False
    if settings.mode in _WITH_CUDA_GRAPHS or settings.options.get("triton.cudagraphs"):
        return True
    config: Any = importlib.import_module("torch._inductor.config")
    return bool(config.triton.cudagraphs)


_tracker: Any = None


def begin_generation() -> None:
    global _tracker
    if _tracker is None:
        _tracker = importlib.import_module("torch._dynamo.mutation_guard").GenerationTracker
    _tracker.generation += 1
