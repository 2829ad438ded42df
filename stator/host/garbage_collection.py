"""The collector waits until a capture is over; weak sets are read whole.   with collector_paused(): capture

Collections cost much and find little; finalizers of the user would run under the modes of the trace.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterator
from typing import TypeVar

_ROOM = 10_000  # objects that a backend makes before the first collection
_paused = _requested = False
_T = TypeVar("_T")


@contextlib.contextmanager
def _switched(paused: bool) -> Iterator[None]:
    global _paused, _requested
    before, _paused = _paused, paused or _paused
    (gc.disable if paused else gc.enable)()
    try:
        yield
    finally:
        _paused = before
        (gc.enable if paused else gc.disable)()
        if paused and _requested:
            _requested = False
            gc.collect(1)  # it was off: what the capture has made is young


def request_collection() -> None:
    """Collect what a capture leaves when it is over, where the program has the collector on."""
    global _requested
    _requested = True


def collector_paused() -> contextlib.AbstractContextManager[None]:
    """Turn the collector off, where the program has it on."""
    return _switched(True) if gc.isenabled() else contextlib.nullcontext()


@contextlib.contextmanager
def collector_running() -> Iterator[None]:
    """Turn the collector on again for work that may take long. Objects of the trace live on: it starts behind them."""
    if not _paused or gc.isenabled():
        yield
        return
    limit, *others = gc.get_threshold()
    raised = (limit and limit + gc.get_count()[0] + _ROOM, *others)
    gc.set_threshold(*raised)
    try:
        with _switched(False):
            yield
    finally:
        if gc.get_threshold() == raised:
            gc.set_threshold(limit, *others)


def living(members: weakref.WeakSet[_T]) -> list[_T]:
    """List the members at one instant: iterating over the set fails where another thread adds one meanwhile."""
    references: set[weakref.ref[_T]] = members.data.copy()  # type: ignore[attr-defined]
    return [member for reference in references if (member := reference()) is not None]
