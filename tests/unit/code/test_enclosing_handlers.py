"""Handlers that the program wrote are told from those that CPython adds."""

from __future__ import annotations

from typing import Any

from stator.code.decode import decode
from stator.code.enclosing_handlers import written_handler


def handled(function: Any, name: str) -> bool:
    """Whether the program handles what is raised where it calls `name`."""
    unit = decode(function.__code__)
    at = next(i.index for i in unit.instructions if i.argval == name)
    return written_handler(unit, at) is not None


def generator(wanted: Any) -> Any:
    yield wanted()


def comprehension(wanted: Any) -> Any:
    item = 1
    return [item.real for item in wanted], item


def nested(wanted: Any) -> Any:
    return [[item.real for item in row] for row in wanted]


def caught(wanted: Any) -> Any:
    try:
        return [item.real for item in wanted]
    except ValueError:
        return None


def caught_in_a_generator(wanted: Any) -> Any:
    try:
        yield wanted.real
    finally:
        print("over")


def test_own_handlers_are_not_the_programs() -> None:
    unit = decode(generator.__code__)
    assert all(written_handler(unit, index) is None for index in range(len(unit.instructions)))
    for function in (comprehension, nested):
        code = next((c for c in function.__code__.co_consts if hasattr(c, "co_code")), function.__code__)
        unit = decode(code)
        assert all(written_handler(unit, index) is None for index in range(len(unit.instructions)))


def test_handlers_of_the_program_are_found_behind_them() -> None:
    inlined = not any(hasattr(constant, "co_code") for constant in caught.__code__.co_consts)
    if inlined:
        assert handled(caught, "real")
    assert handled(caught_in_a_generator, "real")
