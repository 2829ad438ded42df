"""One program on three sides: eager, compiled whole, compiled in pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from stator import events
from tests.comparison import (
    Call,
    Checks,
    Snapshot,
    Surroundings,
    World,
    differences,
    identity,
    outcomes,
    stator_compiler,
    tensors_in,
)

AS_EAGER = Checks(strides="results", gradients="backward")


@dataclass
class Sides:
    """The outcomes of the calls, and what Stator reported while it made pieces."""

    eager: list[Snapshot]
    whole: list[Snapshot]
    pieces: list[Snapshot]
    log: list[events.Event]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.log if isinstance(event, kind)]

    @property
    def uses(self) -> list[int]:
        """How often each unique piece is used, of all graphs that were cut."""
        return [uses for event in self.of(events.GraphCut) for _, uses in event.pieces]

    @property
    def whole_because(self) -> list[str]:
        return [event.why for event in self.of(events.GraphKeptWhole)]


def on_three_sides(build: Callable[[], tuple[Callable[..., Any], list[tuple[Any, ...]]]], backend: str = "aot_eager",
                   checks: Checks = AS_EAGER, around: Any = None, regions: Any = "auto", **settings: Any) -> Sides:
    """`build` makes a program and the arguments of its calls, afresh for each side; `regions`: those of the pieces."""
    def world() -> World:
        torch.manual_seed(3)
        program, calls = build()
        surroundings = Surroundings(__name__, state=lambda: {"program": program},
                                    leaves=lambda call: [each for each in tensors_in([program, *call.args])
                                                         if each.requires_grad and each.is_leaf])
        if around is not None:
            surroundings.around = around
        return World(program, [Call(args, {}) for args in calls], surroundings)

    log: list[events.Event] = []
    compilers = [stator_compiler(backend, options={"regions": each}, **settings) for each in ("off", regions)]
    return Sides(list(outcomes(world(), identity, checks)), list(outcomes(world(), compilers[0], checks)),
                 list(outcomes(world(), compilers[1], checks, log)), log)


def require_equal(sides: Sides, checks: Checks = AS_EAGER, to_eager: bool = True) -> Sides:
    """Pieces equal the whole graph bit by bit, and eager as closely as `checks` says."""
    found = []
    for number, (eager, whole, pieces) in enumerate(zip(sides.eager, sides.whole, sides.pieces, strict=True)):
        found += differences(whole, pieces, f"pieces, call {number}", 0.0)
        found += differences(eager, pieces, f"eager, call {number}", checks.tolerance) if to_eager else []
    failures = [event for event in sides.log if isinstance(event, (events.InternalFailure, events.EagerFallback))]
    if found or failures:
        raise AssertionError("\n  ".join(["pieces differ", *[each[:200] for each in found[:6]], *map(str, failures)]))
    return sides
