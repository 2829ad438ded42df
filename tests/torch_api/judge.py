"""Judge one program: run it eagerly and compiled, on equal inputs and equal random streams.

In: a factory that gives a function and its inputs afresh.  Out: a `Verdict`: captured, broken (with a code),
wrong, or an internal error.  Compared: every part of an outcome (tests/comparison), with the tolerance of each dtype.
"""

from __future__ import annotations

import dataclasses
import math
import traceback
from collections.abc import Callable
from typing import Any

import torch

from tests.comparison import Call, Checks, Surroundings, World, compare_worlds, stator_compiler
from tests.comparison.call_outcome import leaves_among

CAPTURED, BROKEN, RAISES, WRONG, INTERNAL, UNFIT = "captured", "broken", "raises", "wrong", "internal", "unfit"
BAD = (WRONG, INTERNAL)


@dataclasses.dataclass(frozen=True)
class Program:
    """A function, its arguments, and the module (if any) whose state and gradients count."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    module: torch.nn.Module | None = None
    backward: bool = True


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The outcome of one program."""

    kind: str
    code: str = ""
    detail: str = ""

    @property
    def bad(self) -> bool:
        return self.kind in BAD


def judge(make: Callable[[], Program], backend: str = "eager", arbitrary: bool = False) -> Verdict:
    """Compile with breaks allowed: a break is a verdict, not a fault. Arbitrary values (torch.empty) are not compared."""
    checks = Checks(math.inf if arbitrary else None, strides="all" if backend == "eager" else "results", exception="text",
                    warnings="none", gradients="sum" if make().backward else "none", streams=backend in ("eager", "aot_eager"))
    report = compare_worlds(lambda: world_of(make()), stator_compiler(backend, strict=False), checks=checks)
    if report.failures:
        return Verdict(INTERNAL, "", _reason(report.failures[0]))
    if report.differences:
        return Verdict(WRONG, "", report.differences[0][:400])
    if report.breaks:
        return Verdict(BROKEN, report.breaks[0], report.causes[0].splitlines()[0][:160])
    return Verdict(RAISES) if report.raised else Verdict(CAPTURED)


def world_of(program: Program) -> World:
    """One call. The state of a module and the gradients of its parameters count."""
    def state() -> Any:
        return dict(program.module.state_dict()) if program.module is not None else {}

    def leaves(inputs: Call) -> list[torch.Tensor]:
        own = [] if program.module is None else [p for p in program.module.parameters() if p.requires_grad]
        return leaves_among(inputs) + own

    surroundings = Surroundings(type(program.function).__module__, state=state, leaves=leaves)
    return World(program.function, [lambda: (program.args, program.kwargs)], surroundings)


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error
    tail = traceback.extract_tb(cause.__traceback__)[-3:]
    return f"{str(error)[:260]} @ " + " | ".join(f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}" for f in tail)
