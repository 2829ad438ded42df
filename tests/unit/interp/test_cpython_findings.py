"""Findings of CPython's own tests under compile, each in a few lines: the compiled call equals the eager one."""

from __future__ import annotations

import functools
import math
import operator
import traceback
from typing import Any

import pytest
import torch

import stator
from tests.breaks.capture import compare

X = torch.tensor([1.0, -2.0])


class Finalized:
    def __init__(self, first: Any, *, second: Any = 2, third: Any = 3) -> None:
        self.parts = (first, second, third)

    def __del__(self) -> None:
        pass


class Telling:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(*(["said"] if name == "said" else []))


def keywords_of_a_frame_run_natively(x: Any, log: list[Any]) -> Any:
    log.append(Finalized(1, third=4, second=5).parts)
    return x + 1


def names_the_attribute(x: Any, log: list[Any]) -> Any:
    for name in ("other", "said"):
        try:
            getattr(Telling(), name)
        except AttributeError as error:
            log.append((error.name, type(error.obj).__name__, error.args))
    return x + 1


def context_cycle(x: Any, log: list[Any]) -> Any:
    first, second = ValueError("first"), KeyError("second")
    first.__context__, second.__context__ = second, first
    try:
        raise first
    except ValueError:
        try:
            raise TypeError("new")
        except TypeError as error:
            log.append((error.__context__ is first, first.__context__ is second, second.__context__ is first))
    return x + 1


def clears_frames(x: Any, log: list[Any]) -> Any:
    try:
        raise ValueError("v")
    except ValueError as error:
        traceback.clear_frames(error.__traceback__)
        log.append(str(error))
    return x + 1


def global_comes_and_goes(x: Any, log: list[Any]) -> Any:
    global PASSING
    PASSING = 3
    log.append(PASSING)
    del PASSING
    return x + 1


def identity(x: Any, log: list[Any]) -> Any:
    a, b = [1], [1]
    log.append((operator.is_(a, b), operator.is_(a, a), operator.is_not(a, b), operator.is_not(log, log)))
    return x + 1


PROGRAMS = [keywords_of_a_frame_run_natively, names_the_attribute, context_cycle, clears_frames, global_comes_and_goes,
            identity]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_equals_eager(program: Any) -> None:
    compare(program, [(X, []), (X + 1, []), (X, [])])


def looks_at(x: torch.Tensor, v: float) -> Any:
    y = x + v
    if math.isnan(v):
        return y, "nan"
    return y, v == v, math.isinf(v), math.copysign(1.0, v), v > 1e300


def powers(x: torch.Tensor, base: int, exponent: int) -> Any:
    return x * float(base ** exponent % 7), base ** exponent


def test_a_float_that_has_become_a_symbol_is_no_zero_infinity_or_nan() -> None:
    inf, nan = float("inf"), float("nan")
    floats = (1.0, 2.0, 3.5, nan, inf, -inf, 0.0, -0.0, nan, 4.0, -0.0, 1e308)
    compare(looks_at, [(X, v) for v in floats], recompile_limit=32)


def test_powers_of_changing_ints() -> None:
    pairs = ((2, 3), (3, 4), (10, 100), (7, 200), (-3, 3), (2, 0), (10, 99))
    compare(powers, [(X, base, exponent) for base, exponent in pairs], recompile_limit=32)


# ---------------------------------------------------------------------- an object and its own dict, both from outside


class Plain:
    def __init__(self) -> None:
        self.c = 1


def dict_first(x: Any, item: Any, namespace: dict[str, Any]) -> Any:
    namespace.get("absent")
    item.c += 1
    namespace["v"] = item.c
    return x + item.c, item.v, namespace["c"]


def test_an_object_and_its_dict_are_one() -> None:
    compiled = stator.compile(dict_first, backend="eager", options={"strict": True})
    mine, theirs = Plain(), Plain()
    for _ in range(3):
        found, expected = compiled(X, mine, vars(mine)), dict_first(X, theirs, vars(theirs))
        assert found[0].equal(expected[0]) and found[1:] == expected[1:] and vars(mine) == vars(theirs)
    other, unrelated = Plain(), {"c": 10}
    with pytest.raises(AttributeError):
        compiled(X, other, unrelated)
    assert other.c == 2 and unrelated == {"c": 10, "v": 2}


# ---------------------------------------------------------------------- C callables of which no row speaks


class Callbacks:
    """`re.compile(...).match` and its like are C; so is an object whose class is C and that no row lists."""

    cached = __import__("functools").lru_cache(lambda n: n * 2)


def test_a_c_callable_handed_to_c_code_does_not_run_while_tracing() -> None:
    cached = Callbacks.cached

    def program(x: Any) -> Any:
        return x + sum(map(cached, [1, 2, 1]))

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    cached.cache_clear()
    assert compiled(X).equal(X + 8)
    assert (cached.cache_info().hits, cached.cache_info().misses) == (1, 2)


class Slotted(frozenset):  # type: ignore[type-arg]
    __slots__ = ("part",)


def deletes_a_slot(x: Any, held: Any) -> Any:
    del held.part
    return x + len(held)


def test_a_slot_of_the_users_object_is_deleted_once() -> None:
    compiled = stator.compile(deletes_a_slot, backend="eager", options={"strict": True})
    for _ in range(2):
        held = Slotted([1, 2])
        held.part = 3
        assert compiled(X, held).equal(X + 2) and not hasattr(held, "part")


def fills_keywords(x: Any) -> Any:
    made = functools.partial(dict, a=1)
    made.keywords["b"] = 2
    first = made()
    made.keywords[1234] = 3
    try:
        made()
    except TypeError as error:
        return first, str(error), "1234" in repr(made), x + 1


def test_keywords_of_a_partial_are_strings() -> None:
    compiled = stator.compile(fills_keywords, backend="eager", fullgraph=True)
    for _ in range(2):
        assert repr(compiled(X)) == repr(fills_keywords(X))
