"""The entry object: hits, misses, recency, descriptors, and entries that change under a running call."""

import functools
import gc
import inspect
import pickle
import weakref
from typing import Any

import pytest
import torch

from stator._core import EAGER, CompiledFunction, GuardProgram, enter_eager, leave_eager
from stator.guards.guard import Guard, Kind, tensor_meta
from stator.guards.lower import lower
from stator.source import Index, Local

X = Local("x", 0)


def never(*args: Any) -> Any:
    raise AssertionError("a miss")


def equals(value: object, *wanted: Any) -> GuardProgram:
    program = lower([Guard(X, Kind.EQUALS, value)], wanted)
    return GuardProgram(program.nodes, program.checks, program.wanted, 1)


def f(x: Any) -> Any:
    return ("eager", x)


def test_a_hit_calls_the_residual_with_the_wanted_values() -> None:
    program = lower([Guard(X, Kind.LEN, 2)], [Index(X, 1), X, Index(X, 0)])
    entry = CompiledFunction(f, never)
    entry.add_entry(
        GuardProgram(program.nodes, program.checks, program.wanted, 1), lambda *values: values, "tag"
    )
    xs = [1, 2]
    assert entry(xs) == (2, xs, 1) and entry(x=xs)[1] is xs
    assert entry.hits() == [2]


def test_a_residuals_exception_comes_through() -> None:
    entry = CompiledFunction(f, never)
    entry.add_entry(equals(1), lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        entry(1)


def test_a_misss_exception_comes_through() -> None:
    with pytest.raises(AssertionError, match="a miss"):
        CompiledFunction(f, never)(1)


def test_the_most_recently_used_entry_is_first() -> None:
    entry = CompiledFunction(f, lambda *args: "miss")
    for value in range(3):
        entry.add_entry(equals(value), lambda value=value: value, value)
    assert [tag for _, _, tag in entry.entries()] == [2, 1, 0]
    assert [entry(0), entry(1), entry(1), entry(5)] == [0, 1, 1, "miss"]
    assert [tag for _, _, tag in entry.entries()] == [1, 0, 2]
    assert entry.hits() == [2, 1, 0]
    assert entry.last_failures() == [0, 0, 0]


def test_failures_name_the_check() -> None:
    entry = CompiledFunction(f, lambda *args: "miss")
    program = lower([Guard(X, Kind.TYPE, list), Guard(X, Kind.LEN, 1)])
    entry.add_entry(GuardProgram(program.nodes, program.checks, program.wanted, 1), lambda: "hit")
    assert entry.last_failures() == [-1]
    assert entry([]) == "miss" and entry.last_failures() == [1]
    assert entry(()) == "miss" and entry.last_failures() == [0]
    assert entry([0]) == "hit" and entry.last_failures() == [-1]


def test_eager_entries_run_the_function() -> None:
    entry = CompiledFunction(f, never)
    entry.add_entry(equals(1, X), EAGER)
    assert entry(1) == ("eager", 1) and entry(x=1) == ("eager", 1)
    prefixed = CompiledFunction(f, never, (1,))
    prefixed.add_entry(equals(1), EAGER)
    assert prefixed() == ("eager", 1)
    assert repr(EAGER) == "EAGER"


def test_a_disabled_entry_is_the_function() -> None:
    entry = CompiledFunction(f, never)
    entry.set_enabled(False)
    assert entry(3) == ("eager", 3) and not entry.enabled
    entry.set_enabled(True)
    with pytest.raises(AssertionError):
        entry(3)


def test_removing_and_clearing() -> None:
    entry = CompiledFunction(f, lambda *args: "miss")
    first, second = equals(1), equals(2)
    entry.add_entry(first, lambda: 1)
    entry.add_entry(second, lambda: 2)
    assert entry.remove(first) is True and entry.remove(first) is False
    assert entry(1) == "miss" and entry(2) == 2
    entry.clear()
    assert entry(2) == "miss" and entry.entries() == []


def test_a_residual_may_clear_the_entry_that_runs_it() -> None:
    entry = CompiledFunction(f, lambda *args: "miss")

    def residual(x: int) -> str:
        entry.clear()
        gc.collect()
        return f"ran {x}"

    entry.add_entry(equals(1, X), residual)
    del residual
    assert entry(1) == "ran 1" and entry(1) == "miss"


def test_a_miss_may_add_entries_and_recurse() -> None:
    def miss(self: Any, bound: Any, args: Any, kwargs: Any) -> Any:
        (value,) = bound
        below = self(value - 1) if value else 0
        self.add_entry(equals(value), lambda: ("cached", value), value)
        return value + (below if isinstance(below, int) else 0)

    entry = CompiledFunction(f, miss)
    assert entry(5) == 15 and entry(3) == ("cached", 3) and len(entry.entries()) == 6


def test_deep_recursion_raises_recursion_error() -> None:
    entry = CompiledFunction(f, never)
    entry.add_entry(equals(1), lambda: entry(1))
    with pytest.raises(RecursionError):
        entry(1)


def test_it_binds_as_a_method() -> None:
    class Model:
        forward = CompiledFunction(lambda self, x: (self, x), lambda self, bound, args, kwargs: bound)

    model = Model()
    assert model.forward(3) == (model, 3) and Model.forward(model, 3) == (model, 3)
    assert model.forward.__self__ is model and isinstance(Model.forward, CompiledFunction)


def test_it_looks_like_what_it_wraps() -> None:
    def documented(a: int, b: str = "x") -> None:
        """A docstring."""

    entry = functools.update_wrapper(CompiledFunction(documented, never), documented)
    assert (
        entry.__wrapped__ is documented
        and entry.__name__ == "documented"
        and entry.__doc__ == "A docstring."
    )
    assert str(inspect.signature(entry)) == str(inspect.signature(documented))
    entry.note = 1
    assert entry.__dict__["note"] == 1 and "documented" in repr(entry)
    assert weakref.ref(entry)() is entry and callable(entry)
    with pytest.raises((TypeError, AttributeError), match="pickle"):  # as functions do, once stator.api says how
        pickle.dumps(CompiledFunction(documented, never))


def test_wrong_arguments_are_refused() -> None:
    entry = CompiledFunction(f, never)
    for wrong in [
        lambda: CompiledFunction(len, never),
        lambda: CompiledFunction(f, 3),
        lambda: CompiledFunction(f),
    ]:
        with pytest.raises(TypeError):
            wrong()
    for arguments in [(3, f), (equals(1), 3), (equals(1),)]:
        with pytest.raises(TypeError):
            entry.add_entry(*arguments)


def test_cycles_are_collected() -> None:
    class Canary:
        pass

    def build() -> weakref.ref[Any]:
        canary = Canary()

        def fn(x: Any) -> Any:
            return canary, entry

        entry = CompiledFunction(fn, lambda *args: (canary, entry), (canary,))
        program = lower([Guard(X, Kind.ID, canary)], [X])
        entry.add_entry(GuardProgram(program.nodes, program.checks, program.wanted, 1), fn, entry)
        entry.me = entry
        assert entry()[0] is canary
        return weakref.ref(canary)

    canary = build()
    gc.collect()
    assert canary() is None


def test_a_collected_program_cycle() -> None:
    class Holder:
        pass

    holder = Holder()
    program = lower([Guard(X, Kind.ID, holder)])
    holder.program = GuardProgram(program.nodes, program.checks, program.wanted, 1)  # type: ignore[attr-defined]
    canary = weakref.ref(holder)
    del holder, program
    gc.collect()
    assert canary() is None


def test_many_wanted_values() -> None:
    program = lower([], [Index(X, i) for i in range(200)])
    entry = CompiledFunction(f, never)
    entry.add_entry(
        GuardProgram(program.nodes, program.checks, program.wanted, 1), lambda *values: sum(values)
    )
    assert entry(list(range(200))) == sum(range(200))


def test_a_tensor_guard_at_the_entry() -> None:
    x = torch.ones(2, 3)
    program = lower([Guard(X, Kind.TENSOR, tensor_meta(x))], [X])
    entry = CompiledFunction(f, lambda *args: "miss")
    entry.add_entry(GuardProgram(program.nodes, program.checks, program.wanted, 1), lambda x: x + 1)
    assert torch.equal(entry(x), x + 1) and entry(x.double()) == "miss"


def test_a_thread_that_runs_eagerly_asks_no_entry() -> None:
    ran: list[str] = []
    compiled = CompiledFunction(lambda x: ran.append("program"), never)
    compiled.add_entry(equals(3), lambda *values: ran.append("entry"))
    compiled(3)
    enter_eager()
    try:
        compiled(3)
    finally:
        leave_eager()
    compiled(3)
    assert ran == ["entry", "program", "entry"]
