"""One row of the GPU table.   the name of a case  ->  step times, first calls, dispatch times, graphs and breaks

Wall time between two synchronisations of the device, a few steps at a time, the targets in alternation; medians.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo
import torch._inductor.utils

import stator
from benchmarks.gpu_cases import CASES, Case
from benchmarks.sides import GraphCollector
from stator import events

Compile = Callable[..., Any]
COMPILERS: dict[str, Compile] = {"stator": stator.compile, "torch.compile": torch.compile}
WARM_UP = 4  # calls before the clock starts: CUDA graphs are recorded on the second and third


def settings_of(mode: str) -> dict[str, Any]:
    """"inductor" and its modes; anything else is a backend's name."""
    if mode == "inductor":
        return {}
    return {"mode": mode} if mode.startswith(("reduce", "max")) else {"backend": mode}


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextlib.contextmanager
def cold(device: torch.device) -> Iterator[None]:
    """Caches of compiled kernels and graphs that nobody has filled yet."""
    fresh = getattr(torch._inductor.utils, "fresh_cache", None) or torch._inductor.utils.fresh_inductor_cache
    gc.collect()
    with fresh():
        yield


@contextlib.contextmanager
def grad_mode(case: Case) -> Iterator[None]:
    with torch.enable_grad() if case.training else torch.no_grad():
        yield


class Target:
    """A model, compiled or not, with its own weights and inputs."""

    def __init__(self, name: str, chosen: argparse.Namespace, compiler: Compile | None, **settings: Any) -> None:
        self.device = torch.device(chosen.device)
        torch.manual_seed(0)
        self.case = CASES[name](self.device, chosen.tiny)
        self.target = self.case.model if compiler is None else compiler(self.case.model, **settings)
        self.samples: list[float] = []
        self.repeats = 1

    def step(self) -> Any:
        with grad_mode(self.case):
            return self.case.step(self.target)

    def timed(self, count: int) -> float:
        synchronise(self.device)
        started = time.perf_counter()
        for _ in range(count):
            self.step()
        synchronise(self.device)
        return (time.perf_counter() - started) / count

    def settle(self, seconds: float) -> None:
        """Choose how many steps make one measurement."""
        once = max(min(self.timed(2) for _ in range(3)), 1e-6)  # the first ones pay for what is loaded late
        self.repeats = max(1, min(500, int(seconds / once)))

    def measure(self) -> None:
        self.samples.append(self.timed(self.repeats))


def measure(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    try:
        return _measure(name, chosen)
    except Exception as error:  # the other rows are still wanted
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def _measure(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    for mode in chosen.modes.split(","):
        warm_up_compilers(torch.device(chosen.device), settings_of(mode))
    eager = Target(name, chosen, None)
    expected = [eager.step().clone() for _ in range(WARM_UP)]
    figures: dict[str, Any] = {"frames": eager.case.frames, "modes": {}}
    figures["counts"] = {side: counted(name, chosen, side) for side in COMPILERS}
    figures["dispatch"] = dispatch_times(name, chosen)
    targets: dict[tuple[str, str], Target] = {}
    for number, mode in enumerate(chosen.modes.split(",")):
        figures["modes"][mode] = {side: {} for side in COMPILERS}
        sides = list(COMPILERS)[::-1] if number % 2 else list(COMPILERS)
        # There and back: whoever comes first loads the kernels' libraries for both.
        passes = sides[::-1] * (chosen.first_calls - 1) + sides
        for turn, side in enumerate(passes):
            if turn != len(passes) - 1:  # a reset takes recorded CUDA graphs away from what was compiled before
                torch._dynamo.reset()
            cells = figures["modes"][mode][side]
            try:
                targets[mode, side] = first_calls(name, chosen, side, mode, expected, cells)
            except Exception as error:
                traceback.print_exc()
                cells["error"] = f"{type(error).__name__}: {error}"
    everyone = [eager, *targets.values()]
    for target in everyone:
        target.settle(chosen.seconds)
    for number in range(chosen.rounds):
        for target in everyone[number % len(everyone):] + everyone[:number % len(everyone)]:
            target.measure()
    figures["eager"] = summary(eager)
    for (mode, side), target in targets.items():
        figures["modes"][mode][side] |= summary(target)
    return figures


def summary(target: Target) -> dict[str, Any]:
    return {"step": statistics.median(target.samples), "steps": target.samples, "repeats": target.repeats}


def first_calls(name: str, chosen: argparse.Namespace, side: str, mode: str, expected: list[Any],
                cells: dict[str, Any]) -> Target:
    """Compile, say how long the first call took, and compare the first few results with eager's."""
    with cold(torch.device(chosen.device)):
        target = Target(name, chosen, COMPILERS[side], **settings_of(mode))
        synchronise(target.device)
        started = time.perf_counter()
        results = [target.step().clone()]
        synchronise(target.device)
        cells.setdefault("first_calls", []).append(time.perf_counter() - started)
        cells["first_call"] = min(cells["first_calls"])
        results += [target.step().clone() for _ in expected[1:]]
    errors = [relative_error(ours, theirs) for ours, theirs in zip(results, expected, strict=True)]
    cells["error_of_results"] = max(errors)
    cells["same"] = max(errors) < (0.05 if target.device.type == "cuda" else 1e-3)
    print(f"  {mode}, {side}: first call {cells['first_calls'][-1]:.2f} s, error {max(errors):.2e}", flush=True)
    return target


def relative_error(ours: Any, theirs: Any) -> float:
    return float((ours.float() - theirs.float()).norm() / theirs.float().norm().clamp_min(1e-12))


def warm_up_compilers(device: torch.device, settings: dict[str, Any]) -> None:
    """Imports, worker processes and code generators that the first compilation of a process pays for."""
    for compiler in COMPILERS.values():
        with cold(device):
            compiled = compiler(lambda x: (x.sin() @ x.cos()).relu().sum(0), **settings)
            for _ in range(WARM_UP):
                compiled(torch.randn(64, 64, device=device))


def counted(name: str, chosen: argparse.Namespace, side: str) -> dict[str, Any]:
    """Graphs and breaks of the first two steps, with a backend that runs the graphs as they are."""
    torch._dynamo.reset()
    collector = GraphCollector()
    try:
        target = Target(name, chosen, COMPILERS[side], backend=collector)
        with events.record() as log:
            target.step()
            target.step()
        if side == "stator":
            breaks = sum(isinstance(event, events.GraphBreak) for event in log)
        else:
            breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
        return {"graphs": len(collector.graphs), "breaks": breaks, "operations": collector.operations}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def remembered(graph: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    """A backend whose graph returns at once what it returned first."""
    results: list[Any] = []

    def run(*inputs: Any) -> Any:
        if not results:
            results.append(graph.forward(*inputs))
        return results[0]

    return run


def dispatch_times(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure the cost of a call beside its graph: guards, inputs, results."""
    found: dict[str, Any] = {}
    for side, compiler in COMPILERS.items():
        torch._dynamo.reset()
        try:
            target = Target(name, chosen, compiler, backend=remembered)
            with grad_mode(target.case):
                found[side] = {"seconds": _per_call(target, 5 if chosen.tiny else 15, 10 if chosen.tiny else 100)}
        except Exception as error:
            traceback.print_exc()
            found[side] = {"error": f"{type(error).__name__}: {error}"}
    return found


def _per_call(target: Target, batches: int, calls: int) -> float:
    for _ in range(3):
        target.case.call(target.target)
    samples = []
    for _ in range(batches):
        synchronise(target.device)
        started = time.perf_counter()
        for _ in range(calls):
            target.case.call(target.target)
        samples.append((time.perf_counter() - started) / calls)
    return statistics.median(samples)
