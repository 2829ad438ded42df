"""Launch Triton kernels of Inductor directly.   an autotuned kernel  ->  the same kernel with a shorter `run`

In: modules that Inductor has generated.  Out: their kernels with a `run` of their own. Before torch 2.13 each launch
makes an allocator, and looks for a choice of configurations and for dumps; nothing of that can change after the first
one. A launch under a profiler or a debug mode, and one with further keywords, takes torch's own way.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Protocol

import torch
from torch.autograd import profiler

_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
Run = Callable[..., object]


class Kernel(Protocol):
    """The parts of torch's CachingAutotuner that a launch reads."""

    run: Run
    launchers: list[FunctionType]
    inductor_meta: dict[str, object]
    triton_interpret: bool
    dump_launch_params: bool
    dump_launch_tensors: bool


@contextlib.contextmanager
def launches_shortened() -> Iterator[None]:
    """Around a compilation: shorten launches of the modules that it loads."""
    cache = importlib.import_module("torch._inductor.codecache").PyCodeCache
    known = len(cache.modules)
    yield
    shorten_launches(cache.modules[known:])


def shorten_launches(modules: Sequence[ModuleType]) -> None:
    """Let each kernel note its launcher at the first launch; torch 2.13 and later do so themselves."""
    heuristics = sys.modules.get(_HEURISTICS)
    if heuristics is None or hasattr(heuristics.CachingAutotuner, "_build_fast_launcher") or torch.version.hip:
        return
    for module in modules:
        for value in vars(module).values():
            if type(value) is heuristics.CachingAutotuner and "run" not in vars(value):
                value.run = _first_launch(value, heuristics)


def _first_launch(kernel: Kernel, heuristics: ModuleType) -> Run:
    plain = kernel.run

    def run(*args: object, **keywords: object) -> object:
        result = plain(*args, **keywords)
        if not keywords.get("benchmark_run"):
            kernel.run = _direct_launch(kernel, plain, heuristics) or plain
        return result

    return run


def _direct_launch(kernel: Kernel, plain: Run, heuristics: ModuleType) -> Run | None:
    """None where a launch does more than to compute the grid and to start the one configuration that is left."""
    dumps = kernel.triton_interpret or kernel.dump_launch_params or kernel.dump_launch_tensors
    if dumps or len(kernel.launchers) != 1 or kernel.inductor_meta.get("coordinate_descent_tuning"):
        return None
    launcher = kernel.launchers[0]
    static = getattr(launcher.__globals__.get("runner"), "__self__", None)
    if static is None or type(static).__name__ != "StaticallyLaunchedCudaKernel" \
            or static.has_global_scratch or getattr(static, "has_profile_scratch", False) \
            or getattr(launcher, "store_cubin") or getattr(launcher, "config").pre_hook:
        return None
    start, function, warps = static.C_impl._launch_kernel, static.function, static.num_warps
    shared, types, debugging = static.shared, static.arg_tys, heuristics.get_active_debug_mode

    def runner(x: int, y: int, z: int, stream: int, *args: object) -> None:
        start(function, x, y, z, warps, shared, types, args, stream)

    launch = FunctionType(launcher.__code__, {**launcher.__globals__, "runner": runner})

    def run(*args: object, stream: int, **keywords: object) -> object:
        if keywords or profiler._is_profiler_enabled or debugging() is not None:
            return plain(*args, stream=stream, **keywords)
        return launch(*args, stream)

    return run
