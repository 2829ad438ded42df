"""Effects of the residual.   print(x), warnings.warn(...), random.random()  ->  done beside the graph"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stator.host.mechanism import Mechanism


@dataclass(slots=True, eq=False)
class EffectState(Mechanism):
    """Output and calls that the residual makes after the graph, in order."""

    noted: list[Any] = field(default_factory=list)
    lines: set[tuple[str, int]] = field(default_factory=set)  # which write output, that may fail when it is replayed
    watched: bool = False  # whether code of the user's runs when the effects are replayed
    early: int = 0  # how many of them come before the program's first change of anything outside
    runs_once: bool = False  # whether a call that must not run twice is recorded (see effects_order)

    def fingerprint(self) -> Any:
        return len(self.noted)


@dataclass(slots=True, eq=False)
class ResidualState(Mechanism):
    """Values that the residual computes for the graph, and what failed assertions of the graph mean."""

    feeds_graph = True

    draws: list[Any] = field(default_factory=list)  # random numbers that the residual draws, in order
    copies: list[Any] = field(default_factory=list)  # copies of tensors that it makes before the graph, in order
    copy_memos: dict[int, Any] = field(default_factory=dict)  # of a memo of deepcopy() -> which tensors were copied
    assertions: list[Any] = field(default_factory=list)

    def fingerprint(self) -> Any:
        return len(self.draws), len(self.copies), len(self.assertions)


@dataclass(slots=True, eq=False)
class WarningState(Mechanism):
    """Filters of warnings, as the program changes them."""

    managers: dict[int, Any] = field(default_factory=dict)  # the catch_warnings that the program has entered
    recordings: list[Any] = field(default_factory=list)  # catch_warnings(record=True) that are entered, innermost last
    changed: bool = False  # the filters of the process are as they were until the residual runs
