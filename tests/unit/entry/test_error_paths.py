"""Calls into the core that raise leave no reference behind."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stator import _core
from stator._core import EAGER, CompiledFunction, GuardProgram, Provenance, Resume

ROUNDS = 500


class Step(Provenance):
    _family = "step"

    def __init__(self, base: Step | None, detail: Any) -> None:
        self._seal(base, detail)


class Incomparable:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(1)

    def __eq__(self, other: object) -> bool:
        raise LookupError(self.value)


class Root:
    """The type of a graph's nodes: made without arguments, so that no node can be made."""


def fail(*args: Any) -> Any:
    raise LookupError(args)


def f(x: Any, *rest: Any, **extra: Any) -> Any:
    raise LookupError(x, rest, extra)


def unguarded(residual: Any, miss: Callable[..., Any] = fail, taker: Any = None) -> CompiledFunction:
    """A function with one entry that takes every call and hands its first argument on."""
    compiled = CompiledFunction(f, miss)
    compiled.add_entry(GuardProgram([(0, -1, 0)], [], [0], 1), residual)
    compiled.taker = taker
    return compiled


def copied(value: Any, mapped: Callable[..., Any], names: set[str], table: Any) -> Any:
    """One node with arguments that lie deep: `value` is among them."""
    node = SimpleNamespace(_args=(value,), _kwargs={"k": value})
    steps = [(node, "n", True, "call", value, None, None, 0, {"v": value})]
    spaces: tuple[Any, ...] = (names, {}, fail, {})
    return _core.copy_nodes(steps, SimpleNamespace(_root=Root()), {}, spaces, table, mapped, None, 0)


LAYOUT = (7, 0, ((1, 1),))

FAILURES: dict[str, Callable[[Any], Any]] = {
    "a residual raises": lambda v: unguarded(fail)(v),
    "a miss raises": lambda v: CompiledFunction(f, fail)(v, v, k=v),
    "a miss hands back": lambda v: CompiledFunction(f, lambda *a: EAGER)(v, v, k=v),
    "a miss promises an entry": lambda v: CompiledFunction(f, lambda *a: _core.RETRY)(v, v, k=v),
    "the function itself raises": lambda v: unguarded(EAGER)(v, v, k=v),
    "a residual hands back": lambda v: unguarded(lambda *a: EAGER)(v, v, k=v),
    "a call without its argument": lambda v: CompiledFunction(f, fail, (v,))(x=v),
    "a function called next raises": lambda v: unguarded(lambda x: Resume(fail, (x, x)))(v),
    "a taker raises": lambda v: unguarded(lambda x: Resume(fail, (x, x), True))(v),
    "a segment called next raises": lambda v: unguarded(lambda x: Resume(unguarded(fail), (x,)))(v),
    "a native resume raises": lambda v: unguarded(lambda x: Resume(unguarded(EAGER, taker=fail), (x,)))(v),
    "a miss that is no callable": lambda v: CompiledFunction(f, v),
    "a residual that is no callable": lambda v: unguarded(v),
    "nodes that are no sequence": lambda v: GuardProgram(3, [], [], 0),
    "checks that are no sequence": lambda v: GuardProgram([(1, -1, v)], 3, [], 0),
    "a malformed node": lambda v: GuardProgram([(1, -1, v), (3, 0, v)], [], [], 0),
    "a malformed check": lambda v: GuardProgram([(1, -1, v)], [(0, 1, v), (0, 3, v)], [], 0),
    "a wanted node that is not there": lambda v: GuardProgram([(1, -1, v)], [], [0, 7], 0),
    "a step with a detail that has no hash": lambda v: Step(Step(None, v), [v]),
    "a step that is no source": lambda v: Step(v, v),
    "steps that cannot be compared": lambda v: Step(None, Incomparable(v)) == Step(None, Incomparable(v)),
    "steps of which one cannot be compared": lambda v: Step(None, 1) == Step(None, Incomparable(v)),
    "attributes of an object without any": lambda v: _core.set_vars(object(), {"v": v}),
    "members that have no hash": lambda v: _core.fill_set(set(), LAYOUT, [[v]]),
    "members of what is no set": lambda v: _core.fill_set(v, LAYOUT, [v]),
    "arguments that cannot be mapped": lambda v: copied(v, fail, set(), [{}]),
    "keywords that cannot be mapped": lambda v: copied(v, lambda a: a if isinstance(a, dict) else fail(a), set(), [{}]),
    "a name that cannot be made": lambda v: copied(v, lambda a: a, set(), [{}]),
    "a node that cannot be made": lambda v: copied(v, lambda a: a, {"n"}, [{}]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_leaves_nothing_behind(name: str) -> None:
    value = SimpleNamespace()
    watched = [value, f, fail, Step, EAGER, _core.RETRY]

    def run(rounds: int) -> list[int]:
        for _ in range(rounds):
            with pytest.raises(Exception) as raised:
                FAILURES[name](value)
            del raised
        gc.collect()
        return [sys.getrefcount(each) for each in watched] + [len(gc.get_objects()) // 100]

    run(10)
    before = run(1)
    after = run(ROUNDS)
    assert all(abs(now - then) < 50 for now, then in zip(after, before, strict=True)), (before, after)
