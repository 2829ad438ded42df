"""Which slots are live where."""

from __future__ import annotations

from typing import Any

from stator.code.decode import decode
from stator.code.flow import live_in_call, live_locals


def live_names(function: Any, opname: str, argval: Any = None) -> set[str]:
    """Names live before the first instruction with that opname and, if given, argval."""
    unit = decode(function.__code__)
    at = next(i for i in unit.instructions if i.opname == opname and argval in (None, i.argval))
    return {unit.local_names[slot] for slot in live_locals(unit, at.index)}


def test_dead_after_the_last_read() -> None:
    def subject(x, y):  # type: ignore[no-untyped-def]
        z = probe(x)  # noqa: F821
        return z + y

    assert live_names(subject, "RESUME") == {"x", "y"}
    assert live_names(subject, "CALL") == {"y"}
    assert live_names(subject, "RETURN_VALUE") == set()


def test_overwritten_is_dead() -> None:
    def subject(x):  # type: ignore[no-untyped-def]
        probe()  # noqa: F821
        x = 1
        return x

    assert live_names(subject, "CALL") == set()


def test_loops_carry_liveness_backward() -> None:
    def subject(xs, scale):  # type: ignore[no-untyped-def]
        for x in xs:
            probe(x)  # noqa: F821
            x * scale

    assert live_names(subject, "CALL") == {"scale", "x"}
    assert "scale" in live_names(subject, "FOR_ITER") and "xs" not in live_names(subject, "FOR_ITER")


def test_handlers_keep_what_they_read() -> None:
    def subject(x, fallback):  # type: ignore[no-untyped-def]
        try:
            x = probe(x)  # noqa: F821
        except ValueError:
            return x, fallback
        return x

    assert live_names(subject, "CALL") == {"x", "fallback"}

    def plain(x, fallback):  # type: ignore[no-untyped-def]
        x = probe(x)  # noqa: F821
        return x

    assert live_names(plain, "CALL") == set()


def test_a_covered_store_keeps_the_old_value() -> None:
    def subject(x):  # type: ignore[no-untyped-def]
        try:
            x = probe()  # noqa: F821
        finally:
            print(x)

    assert live_names(subject, "CALL") == {"x"}


def test_cells_live_through_their_closures() -> None:
    def subject(x):  # type: ignore[no-untyped-def]
        def inner():  # type: ignore[no-untyped-def]
            return x

        probe(inner)  # noqa: F821
        x = 2
        return inner

    assert live_names(subject, "MAKE_CELL") == {"x"}
    assert live_names(subject, "CALL") == {"x", "inner"}  # storing into a cell needs the cell


def test_free_variables_are_copied_in() -> None:
    free = 1

    def subject():  # type: ignore[no-untyped-def]
        return free

    assert live_names(subject, "COPY_FREE_VARS") == set()
    assert live_names(subject, "RESUME") == {"free"}
    assert live_names(subject, "LOAD_DEREF") == {"free"}


def test_deletion_needs_the_value() -> None:
    def subject(x):  # type: ignore[no-untyped-def]
        probe()  # noqa: F821
        del x

    assert live_names(subject, "CALL") == {"x"}
    assert live_names(subject, "LOAD_GLOBAL", "probe") == {"x"}


def test_a_call_may_end_in_three_ways() -> None:
    def subject(x, y):  # type: ignore[no-untyped-def]
        for z in x:
            y = z
        try:
            return probe()  # noqa: F821
        except ValueError:
            return y

    unit = decode(subject.__code__)
    loop = next(i.index for i in unit.instructions if i.opname == "FOR_ITER")
    call = next(i.index for i in unit.instructions if i.opname == "CALL")
    assert {unit.local_names[slot] for slot in live_locals(unit, loop + 1)} == set()
    assert {unit.local_names[slot] for slot in live_in_call(unit, loop + 1)} == {"y"}
    assert {unit.local_names[slot] for slot in live_locals(unit, call + 1)} == set()
    assert {unit.local_names[slot] for slot in live_in_call(unit, call + 1)} == {"y"}
