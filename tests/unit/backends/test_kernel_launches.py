"""Direct launches, with stand-ins for the classes of torch: no GPU is needed."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from stator.backends import kernel_launches


class Native:
    """Record launches as torch's launcher in C++ would get them."""

    def __init__(self):
        self.launched = []

    def _launch_kernel(self, *args):
        self.launched.append(args)


class StaticallyLaunchedCudaKernel:
    has_global_scratch = has_profile_scratch = False
    function, num_warps, shared, arg_tys = 77, 4, 128, "OOi"

    def __init__(self, native):
        self.C_impl = native

    def run(self, x, y, z, stream, *args):
        self.C_impl._launch_kernel(self.function, x, y, z, self.num_warps, self.shared, self.arg_tys, args, stream)


def launcher_of(static, **facts):
    names = {"runner": static.run}
    exec("def launcher(a, b, n, stream):\n    runner(-(n // -1024), 1, 1, stream, a, b, n)", names)
    launcher = names["launcher"]
    launcher.store_cubin, launcher.config = False, types.SimpleNamespace(pre_hook=None)
    vars(launcher).update(facts)
    return launcher


def kernel_with(monkeypatch, native, launchers=1, **facts):
    class CachingAutotuner:
        triton_interpret = dump_launch_params = dump_launch_tensors = False

        def __init__(self):
            static = StaticallyLaunchedCudaKernel(native)
            vars(static).update(facts.pop("static", {}))
            self.launchers = [launcher_of(static, **facts) for _ in range(launchers)]
            self.inductor_meta = {}
            self.slow = 0

        def run(self, *args, stream, benchmark_run=False, **keywords):
            self.slow += 1
            self.launchers = self.launchers[:1]
            self.launchers[0](*args, stream=stream)

    heuristics = types.SimpleNamespace(CachingAutotuner=CachingAutotuner, get_active_debug_mode=lambda: None)
    monkeypatch.setitem(sys.modules, kernel_launches._HEURISTICS, heuristics)
    module = types.ModuleType("generated")
    module.kernel = CachingAutotuner()
    kernel_launches.shorten_launches([module])
    return module.kernel, heuristics


def test_later_launches_skip_the_autotuner(monkeypatch):
    native = Native()
    kernel, _ = kernel_with(monkeypatch, native, launchers=3)  # the first launch chooses one of three
    for stream in (5, 6, 7):
        kernel.run("a", "b", 2049, stream=stream)
    assert kernel.slow == 1
    assert native.launched == [(77, 3, 1, 1, 4, 128, "OOi", ("a", "b", 2049), stream) for stream in (5, 6, 7)]


def test_a_profiler_and_a_debug_mode_take_the_slow_way(monkeypatch):
    kernel, heuristics = kernel_with(monkeypatch, Native())
    mode = []
    heuristics.get_active_debug_mode = lambda: mode[0] if mode else None
    kernel.run("a", "b", 1, stream=0)
    kernel.run("a", "b", 1, stream=0)
    assert kernel.slow == 1
    with torch.profiler.profile():
        kernel.run("a", "b", 1, stream=0)
    assert kernel.slow == 2
    kernel.run("a", "b", 1, stream=0)
    mode.append(object())
    kernel.run("a", "b", 1, stream=0)
    assert kernel.slow == 3


def test_keywords_take_the_slow_way(monkeypatch):
    kernel, _ = kernel_with(monkeypatch, Native())
    kernel.run("a", "b", 1, stream=0, benchmark_run=True)  # a benchmark does not count as the first launch
    kernel.run("a", "b", 1, stream=0)
    kernel.run("a", "b", 1, stream=0, warmup=True)
    kernel.run("a", "b", 1, stream=0)
    assert kernel.slow == 3


@pytest.mark.parametrize("facts", [{"store_cubin": True}, {"config": types.SimpleNamespace(pre_hook=print)},
                                   {"static": {"has_global_scratch": True}}], ids=["stored", "hook", "scratch"])
def test_other_launches_stay(monkeypatch, facts):
    kernel, _ = kernel_with(monkeypatch, Native(), **facts)
    for _ in range(3):
        kernel.run("a", "b", 1, stream=0)
    assert kernel.slow == 3
