"""Intrinsics of CPython as functions, and texts of its warnings.   "INTRINSIC_TYPEVAR"  ->  a function that runs it

CALL_INTRINSIC_1 and _2 run them by number; 3.11 has none.  Texts of DeprecationWarnings are read from CPython itself.
"""

from __future__ import annotations

import builtins
import functools
import operator
import re
import types
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from types import FunctionType
from typing import Any

from .encode import encode_parts
from .instruction import Instruction
from .opcodes import INTRINSICS_1, INTRINSICS_2


def _stub(first: object, second: object = None) -> Any: ...


@functools.cache
def intrinsic(name: str) -> Callable[..., Any]:
    """The intrinsic called `name`, to be called with one or two arguments."""
    operands: tuple[int, ...]
    if name in INTRINSICS_1:
        opname, number, operands = "CALL_INTRINSIC_1", INTRINSICS_1.index(name), (0,)
    else:
        opname, number, operands = "CALL_INTRINSIC_2", INTRINSICS_2.index(name), (0, 1)
    body = [Instruction("RESUME", 0), *(Instruction("LOAD_FAST", slot) for slot in operands),
            Instruction(opname, number), Instruction("RETURN_VALUE")]
    code = encode_parts(_stub.__code__, body, co_name=name)
    return FunctionType(code, {"__name__": "typing", "__builtins__": builtins}, name, (None,))


def _text_of(call: Callable[[], Any]) -> str:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return str(seen[0].message) if seen else ""


def _waiting() -> Iterator[None]:
    try:
        yield
        yield
    except ValueError:
        yield


def _throw_by_parts() -> None:
    generator = _waiting()
    next(generator)
    generator.throw(ValueError, "text")  # type: ignore[attr-defined]


async def _yielding() -> AsyncIterator[None]:
    yield


def _drop_unawaited() -> None:
    _yielding().__anext__()


def _athrow_by_parts() -> None:
    _yielding().athrow(ValueError, "text").close()  # type: ignore[attr-defined]


def _assign_other_kind() -> None:
    types.FunctionType(_throw_by_parts.__code__, {}).__code__ = _waiting.__code__


def _closing() -> Iterator[None]:
    try:
        yield
    except GeneratorExit:
        return True  # type: ignore[return-value]


def _close_returns() -> bool:
    generator = _closing()
    next(generator)
    return generator.close() is not None  # type: ignore[attr-defined]


class _Chained:
    chained: Any = classmethod(property(lambda cls: True))  # type: ignore[arg-type]


def _get_from_partial() -> None:
    getter: Any = getattr(functools.partial, "__get__", None)
    if getter is not None:
        getter(functools.partial(int), 1)


def _make_odd_class() -> None:
    names: dict[Any, int] = {1: 2}
    type("Odd", (), names)


class _NoException(Exception):
    def __new__(cls) -> None:  # type: ignore[misc]
        return None


def _checks_causes() -> bool:
    try:
        raise IndexError from _NoException
    except IndexError:
        return False
    except TypeError:
        return True


CLOSE_RETURNS = _close_returns()  # whether generator.close() returns what the generator does (since 3.13)
CLASS_METHODS_CHAIN = _Chained.chained is True  # whether classmethod binds what it holds by its __get__ (until 3.12)
GET_FROM_PARTIAL = _text_of(_get_from_partial)  # functools.partial.__get__(instance) (in 3.13)
CHECKS_CAUSES = _checks_causes()  # whether `raise ... from C` looks at what C() gives (since 3.13)
CODE_OF_OTHER_KIND = _text_of(_assign_other_kind)  # function.__code__ = that of a generator (since 3.13)
INVERTED_BOOL = _text_of(lambda: operator.invert(True))  # ~True
THROWN_BY_PARTS = _text_of(_throw_by_parts)  # generator.throw(type, value)
ODD_CLASS_KEYS = bool(_text_of(_make_odd_class))  # a class with keys that are no strings (since 3.13)
COUNT_BY_PLACE: dict[Any, str] = {  # re.sub(p, r, s, 1) (since 3.13)
    each: _text_of(functools.partial(each, "a", *["b"] * number, 0))
    for each, number in ((re.split, 1), (re.sub, 2), (re.subn, 2))}
ATHROWN_BY_PARTS = _text_of(_athrow_by_parts)  # the same of an async generator
UNAWAITED_STEPS = bool(_text_of(_drop_unawaited))  # whether asend() of an async generator warns unawaited (since 3.13)
