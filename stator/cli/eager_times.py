"""Time calls that run eagerly.   an EagerFallback event  ->  seconds of the call behind it

In: events of eager calls while the block runs.  Out: for each event that was followed by a call, its seconds.

Two ways lead to such a call.  An entry hands it back: `check_ending` runs at its end.  No entry is made: the entry
object would call the function, and the call is made here instead.  The rest of a call behind a break is not timed in
the second case, because its values would live longer.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from stator import _core, events
from stator.capture import miss
from stator.emit.residual import eager_calls

if TYPE_CHECKING:
    from stator.capture.call_site import CallSite

Started = tuple[events.EagerFallback, float]


class _Here(threading.local):
    """Eager calls of one thread that have begun, by the depth of their nesting."""

    def __init__(self) -> None:
        self.begun: dict[int, Started] = {}


class EagerTimes:
    """Seconds of eager calls, with the event of each."""

    def __init__(self) -> None:
        self.rows: list[tuple[events.EagerFallback, float]] = []
        self._here = _Here()

    def note(self, event: events.Event) -> None:
        """A call is about to run eagerly."""
        if isinstance(event, events.EagerFallback):
            self._here.begun[depth()] = event, time.perf_counter()

    def end(self, at: int) -> None:
        """The call that was noted at a depth has ended."""
        now, started = time.perf_counter(), self._here.begun.pop(at, None)
        if started is not None:
            self.rows.append((started[0], now - started[1]))


def depth() -> int:
    return len(eager_calls._being_redone.__dict__.get("causes", ()))


@contextlib.contextmanager
def eager_times() -> Iterator[EagerTimes]:
    """Time eager calls while the block runs."""
    found, handle, ending = EagerTimes(), miss.handle_miss, eager_calls.check_ending
    stop = events.subscribe(found.note)

    def ended(compiled: object, error: BaseException | None, traceback: object) -> None:
        found.end(depth() - 1)
        ending(compiled, error, traceback)

    def watch(site: CallSite, compiled: _core.CompiledFunction, bound: tuple[object, ...], args: tuple[object, ...],
              kwargs: dict[str, object] | None) -> object:
        result = handle(site, compiled, bound, args, kwargs)
        if result is not _core.EAGER or site.point is not None or depth() not in found._here.begun:
            return result
        return called(found, compiled.fn, args, kwargs or {})

    miss.handle_miss = watch
    _core.listen_to_redone(ended)
    try:
        yield found
    finally:
        _core.listen_to_redone(ending)
        miss.handle_miss = handle
        stop()


def called(found: EagerTimes, fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    at = depth()
    try:
        return fn(*args, **kwargs)
    finally:
        found.end(at)
