"""Where the ways of a branch meet."""

from __future__ import annotations

from typing import Any

from stator.code.decode import decode
from stator.code.flow import EXIT, region_after


def regions(function: Any) -> list[Any]:
    unit = decode(function.__code__)
    branches = [i.index for i in unit.instructions if i.target is not None and "IF" in i.opname]
    return [region_after(unit, index) for index in branches]


def line_of(function: Any, index: int) -> int:
    return decode(function.__code__).instructions[index].line - function.__code__.co_firstlineno


def if_else(a):
    if a:
        x = 1
    else:
        x = 2
    return x


def both_return(a):
    if a:
        return 1
    return 2


def one_raises(a):
    if a:
        raise ValueError
    return 2


def loop(a):
    while a:
        a = a - 1
    return a


def leaves_a_loop(a):
    for i in a:
        if i:
            break
    return a


def yields(a):
    if a:
        yield 1
    yield 2


def never(a):
    if a:
        raise ValueError
    raise KeyError


def test_meeting_places() -> None:
    region = regions(if_else)[0]
    assert line_of(if_else, region.join) == 5 and not region.loops
    assert regions(both_return)[0].join == EXIT
    region = regions(one_raises)[0]
    assert line_of(one_raises, region.join) == 3, "a way that raises does not count"


def test_loops() -> None:
    for function in (loop, leaves_a_loop):
        assert any(region.loops for region in regions(function))


def test_generators_and_ways_that_never_meet() -> None:
    assert regions(yields)[0].suspends
    assert regions(never) == [None]
