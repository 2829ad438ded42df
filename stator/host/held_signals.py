"""Signal handlers written in Python wait until a capture is over.   with held_signals(): capture

A handler would run under the modes of the trace.  While a backend compiles it runs at once, as does Ctrl-C's own.
"""

from __future__ import annotations

import _signal
import contextlib
import functools
import signal
import threading
import traceback
import types
from collections.abc import Iterator
from typing import Any

_NUMBERS = [int(number) for number in signal.valid_signals()]


class HandlerRaised(BaseException):
    """A handler raised inside a capture: no failure of the capture, so not an Exception on its way out of it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Forwarding:
    """A user handler while a backend compiles: the backend must not catch its exception."""

    def __init__(self, handler: Any) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: object) -> None:
        try:
            self.handler(number, frame)
        except BaseException as error:
            raise HandlerRaised(error) from None


def put_back(number: int, handler: Any, raised: list[BaseException]) -> None:
    """Make it the handler, whatever the handler of a signal that comes meanwhile raises."""
    while True:
        try:
            _signal.signal(number, handler)
            return
        except BaseException as error:
            raised.append(error)


class HeldSignals:
    """The user's handlers, and the signals that came for them."""

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.arrived: list[int] = []

    def hold(self) -> None:
        self.handlers = {number: handler.handler if type(handler) is Forwarding else handler
                         for number, handler in users_handlers().items()}
        for number in self.handlers:
            _signal.signal(number, self.note)

    def note(self, number: int, frame: object) -> None:
        if number not in self.arrived:
            self.arrived.append(number)

    def let_go(self) -> None:
        """Put the handlers back; those whose signal has come run now, and may raise."""
        raised: list[BaseException] = []
        for number, handler in self.handlers.items():
            put_back(number, handler, raised)
        if raised:
            raise raised[0]
        while self.arrived:
            signal.raise_signal(self.arrived.pop(0))

    def forward(self) -> None:
        for number, handler in self.handlers.items():
            _signal.signal(number, Forwarding(handler))


_held: HeldSignals | None = None  # of the main thread, the only one where handlers run


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    global _held
    if _held is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    held = HeldSignals()
    try:
        held.hold()  # a handler that raises now, or half-way, is the caller's
        _held = held
        yield
    except HandlerRaised as raised:
        raise raised.error from None
    finally:
        _held = None
        held.let_go()


@contextlib.contextmanager
def signals_let_through() -> Iterator[None]:
    """Inside held_signals(): handlers run as they come."""
    global _held
    held = _held
    if held is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    _held = None
    try:
        held.let_go()
    except BaseException as error:
        raise HandlerRaised(error) from None
    held.forward()
    try:
        yield
    finally:
        held.hold()
        _held = held


def users_handlers() -> dict[int, Any]:
    """The Python functions that signals call, but for the one that raises KeyboardInterrupt."""
    found = ((number, _signal.getsignal(number)) for number in _NUMBERS)
    return {number: handler for number, handler in found
            if handler is not None and type(handler) is not int and handler is not signal.default_int_handler}


def raised_by_a_handler(error: BaseException) -> bool:
    """Whether an exception comes out of a function that signals call."""
    codes = {id(_code_of(handler)) for handler in users_handlers().values()}
    return any(id(frame.f_code) in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: object) -> Any:
    """The code that runs first when a handler is called; None for C code."""
    if isinstance(handler, Forwarding):
        handler = handler.handler
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    if type(handler) is types.FunctionType:
        return handler.__code__
    return getattr(getattr(type(handler), "__call__", None), "__code__", None)  # noqa: B004  not: whether it has one
