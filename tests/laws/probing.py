"""Probe one law: run a program eagerly and compiled, in two worlds of its own, and compare all that can be seen.

In:  a factory of `Scene`s (a function, its arguments, the outside world it depends on, a change of that world).
Out: the differences between the two sides on the first call, on a repeat, after the change, and on a repeat of
that; and what the trace alone did to the world, which must be nothing.
"""

from __future__ import annotations

import contextlib
import gc
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import stator
from stator.capture.trace import root_frame, trace
from tests.comparison import (
    Checks,
    Report,
    Snapshot,
    Snapshotter,
    Surroundings,
    World,
    compare_worlds,
    differences,
)
from tests.comparison.call_outcome import output_recorded, random_streams, seed_streams, torch_modes
from tests.comparison.eager_and_compiled import Compiler

CAPTURED = "captured"  # no graph break, no call that ran eagerly
RAISES = "raises"  # the program raises: CPython does it again, under the guards that led there
# CPython's text of a RecursionError depends on the instruction that met the limit.
CHECKS = Checks(warnings="interleaved", seed=None, no_text_of=(RecursionError,))
STEPS = ("first call", "repeat", "after the change", "repeat after the change")


def nothing() -> None:
    return None


@dataclass
class Scene:
    """One world: `args()` gives the arguments of a call, `look()` what the outside world holds."""

    fn: Callable[..., Any]
    args: Callable[[], tuple[Any, ...]]
    change: Callable[[], Any] = nothing
    look: Callable[[], Any] = nothing
    undo: Callable[[], Any] = nothing
    around: Callable[[], Any] = contextlib.nullcontext  # entered around each call, as the change left it


@dataclass(frozen=True)
class Probe:
    """A law put to the test. `expected`: CAPTURED, RAISES, or the codes of the breaks that it may end in."""

    name: str
    make: Callable[[], Scene]
    expected: str

    def __repr__(self) -> str:
        return self.name


PROBES: dict[str, Probe] = {}


def probe(expected: str = CAPTURED) -> Callable[[Callable[[], Scene]], Callable[[], Scene]]:
    """Register a factory of scenes as a probe."""
    def register(make: Callable[[], Scene]) -> Callable[[], Scene]:
        if make.__name__ in PROBES:
            raise ValueError(f"two probes named {make.__name__}")
        PROBES[make.__name__] = Probe(make.__name__, make, expected)
        return make
    return register


def compiled(fn: Callable[..., Any]) -> Any:
    # A trace that raises where the program does not is made good by CPython; under `strict` it is an error of ours.
    return stator.compile(fn, backend="eager", fullgraph=False, options={"strict": True})


def ramp(count: int = 4, **options: Any) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32).mul_(0.5).sub_(1).requires_grad_(options.get("grad", False))


def judge(make: Callable[[], Scene], compiler: Compiler = compiled) -> Report:
    """Both sides of a probe, one after the other, each in its own world."""
    return compare_worlds(lambda: world_of(make()), compiler, checks=CHECKS)


def world_of(scene: Scene) -> World:
    """The four calls of a scene. The collector rests: what eager lets go of at once must not wait for it."""
    seed_streams()
    collecting = gc.isenabled()
    gc.disable()

    def before(number: int) -> None:
        if number == 2:
            scene.change()

    def undo() -> None:
        scene.undo()
        if collecting:
            gc.enable()

    def inputs() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return scene.args(), {}

    file = scene.fn.__code__.co_filename if isinstance(scene.fn, types.FunctionType) else ""
    surroundings = Surroundings(scene.fn.__module__, file, scene.look, around=scene.around)
    return World(scene.fn, [inputs] * len(STEPS), surroundings, before, undo, STEPS)


def world_changed_by_tracing(make: Callable[[], Scene]) -> list[str]:
    """Effects of a trace alone: on arguments, outside state, printed text, torch's modes."""
    scene = make()
    try:
        args = scene.args()
        before = describe_world(scene, args)
        with output_recorded("interleaved", "") as output, scene.around():
            done = trace(lambda vm: (root_frame(vm, scene.fn, bound_arguments(scene.fn, args)), None, None))
        after = describe_world(scene, args)
        del done
        found = list(differences(before, after, "tracing"))
        return found + [f"tracing {line}" for line in output.text().splitlines()]
    finally:
        scene.undo()


def bound_arguments(fn: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The local slots of the call: positional arguments, then defaults."""
    missing = fn.__code__.co_argcount - len(args)
    return (*args, *(fn.__defaults__[-missing:] if missing else ()))


def describe_world(scene: Scene, args: tuple[Any, ...]) -> Snapshot:
    snapshotter = Snapshotter(scene.fn.__module__)
    root = Snapshot("world")
    root.parts["args"] = snapshotter.take(list(args), "args")
    root.parts["world"] = snapshotter.take(scene.look(), "world")
    root.parts["fn"] = snapshotter.take(scene.fn, "fn")
    root.parts["modes"] = Snapshot(repr(torch_modes()))
    root.parts["random"] = Snapshot(repr(random_streams()))
    return root


def ending_in_a_break(make: Callable[[], Scene]) -> Callable[[], Scene]:
    """The same program, with a graph break as the last thing it does: nothing may have happened twice."""
    def made() -> Scene:
        scene = make()
        inner = scene.fn

        def then_break(*args: Any) -> Any:
            result = inner(*args)
            stator.graph_break()
            return result

        then_break.__module__ = inner.__module__
        scene.fn = then_break
        return scene
    return made
