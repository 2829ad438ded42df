"""Adopt values of the standard library that never change.   datetime, Decimal  ->  themselves, by their value

In: an object and where it was read.  Out: the object; what it was made of, which `__reduce__` tells, is the fact.
"""

from __future__ import annotations

import datetime
import decimal
import functools
from typing import Any

from stator.guards.guard import Kind, is_constant
from stator.heap.services import Heap
from stator.heap.tracker import ShadowKind, VariableTracker
from stator.source import CallOf, Pinned, Source

VALUES: frozenset[type] = frozenset({datetime.date, datetime.time, datetime.datetime, datetime.timedelta,
                                     datetime.timezone, decimal.Decimal})


def value_adopters(heap: Heap) -> dict[type, Any]:
    """Adopters by type, each called as adopter(value, source)."""
    return dict.fromkeys(VALUES, functools.partial(adopt_value, heap))


def parts_of(value: object) -> Any:
    """A pure reader for guards: what a value was made of; None where that is no constant (a time zone of one's own)."""
    if type(value) not in VALUES:
        return None
    parts = tuple(value.as_tuple()) if type(value) is decimal.Decimal else value.__reduce__()[1]
    parts = tuple(parts_of(part) if type(part) in VALUES else part for part in parts)
    return parts if is_constant(parts) else None


def decimal_settings() -> tuple[Any, ...]:
    """A pure reader for guards: how this thread computes decimals."""
    context = decimal.getcontext()
    traps = tuple(sorted(signal.__name__ for signal, trapped in context.traps.items() if trapped))
    return (context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, *traps)


def guard_decimal_settings(heap: Heap) -> None:
    heap.guard(CallOf(Pinned(decimal_settings)), Kind.FRESH_CALL, decimal_settings())


def adopt_value(heap: Heap, value: object, source: Source) -> Any:
    parts = parts_of(value)
    if parts is None:
        return heap._adopt_opaque(value, source)
    tracker = heap.known(value, source)
    if tracker is None:
        if type(value) is decimal.Decimal:
            guard_decimal_settings(heap)
        heap.guard(source, Kind.TYPE, type(value))
        heap.guard(CallOf(Pinned(parts_of), (source,)), Kind.FRESH_CALL, parts)
        tracker = heap.register(VariableTracker(value, value, source, ShadowKind.VALUE))
    return tracker.standin
