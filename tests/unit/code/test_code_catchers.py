"""Which handlers may end an exception raised at a place, read off the code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from stator.code.decode import decode
from stator.code.enclosing_handlers import ANYTHING, Catcher, catchers


def mark() -> None:
    """Where the exception is raised."""


def nothing_around() -> None:
    mark()


def clauses_that_name_classes() -> None:
    try:
        mark()
    except TypeError as error:
        print(error)
    except KeyError:
        pass


def clauses_of_several_classes() -> None:
    try:
        mark()
    except (TypeError, KeyError):
        pass


def a_class_and_a_rest() -> None:
    try:
        mark()
    except TypeError:
        pass
    except:  # noqa: E722
        pass


def only_a_finally() -> None:
    try:
        mark()
    finally:
        for _ in range(3):
            print("left")


def a_finally_that_may_return(flag: bool) -> Any:
    try:
        mark()
    finally:
        if flag:
            return 3  # noqa: B012


def a_finally_inside_clauses() -> None:
    try:
        try:
            mark()
        finally:
            print("left")
    except TypeError:
        pass


def a_manager() -> None:
    with contextlib.nullcontext():
        mark()


def a_manager_inside_a_clause_in_a_loop() -> None:
    for _ in range(2):
        try:
            with contextlib.nullcontext():
                try:
                    mark()
                finally:
                    print("left")
        except KeyError:
            pass


def a_group() -> None:
    try:
        mark()
    except* TypeError:
        pass


def in_a_handler() -> None:
    try:
        print("begun")
    except TypeError:
        mark()


def in_a_generator() -> Any:
    yield 1
    mark()




CASES: list[tuple[Callable[..., Any], tuple[Catcher, ...]]] = [
    (nothing_around, ()),
    (clauses_that_name_classes, (Catcher(name="TypeError"), Catcher(name="KeyError"))),
    (clauses_of_several_classes, (ANYTHING,)),
    (a_class_and_a_rest, (ANYTHING,)),
    (only_a_finally, (Catcher(reraises=True),)),
    (a_finally_that_may_return, (ANYTHING,)),
    (a_finally_inside_clauses, (Catcher(reraises=True), Catcher(name="TypeError"))),
    (a_manager, (Catcher(manager=0),)),
    (a_manager_inside_a_clause_in_a_loop, (Catcher(reraises=True), Catcher(manager=1), Catcher(name="KeyError"))),
    (a_group, (ANYTHING,)),
    (in_a_handler, ()),
    (in_a_generator, ()),
]


def test_who_may_end_it() -> None:
    for program, expected in CASES:
        unit = decode(program.__code__)
        load = next(each.index for each in unit.instructions if each.argval == "mark")
        call = next(each for each in unit.instructions[load:] if each.opname == "CALL")
        assert catchers(unit, call.index) == expected, program.__name__
        assert catchers(unit, call.index) == expected, program.__name__
