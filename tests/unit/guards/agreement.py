"""Runs a guard both ways.   guard, arguments  ->  one answer, or an assertion that C++ and Python disagree"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch  # noqa: F401 - torch's libraries must be loaded before the core

from stator import _core
from stator.guards.guard import Guard
from stator.guards.guard_semantics import Unreadable
from stator.guards.lower import lower
from stator.source import Source
from tests.unit.guards.plain_semantics import check, evaluate

NOWHERE = object()


def program(guards: Iterable[Guard], wanted: Sequence[Source] = (), nargs: int = 1) -> Any:
    lowered = lower(guards, wanted)
    return _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, nargs)


def holds(guard: Guard, *args: Any) -> bool:
    """Asks C++ three times (the second and third may use cached versions) and Python once."""
    compiled = program([guard], nargs=len(args))
    answers = {compiled.check(args) == -1 for _ in range(3)}
    answers.add(check(guard, args))
    assert len(answers) == 1, f"C++ and Python disagree about {guard.text()}"
    return answers.pop()


def read(source: Source, *args: Any) -> Any:
    """The value of a source, or NOWHERE; by C++ and by Python, which must agree on the object."""
    compiled = program([], [source], nargs=len(args))
    values = compiled.values(args)
    found = NOWHERE if values is None else values[0]
    try:
        expected = evaluate(source, args)
    except Unreadable:
        expected = NOWHERE
    same = found is expected or (
        type(found) is type(expected) and type(found) in (int, float, str) and found == expected
    )
    assert same, f"C++ and Python disagree about {source.text()}: {found!r}, {expected!r}"
    return found
