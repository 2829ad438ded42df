"""Write captures to the store of the process.   a capture is written there, at once or when the process ends

In: a site that has captured.  Out: a file with the entries of this process, in a slot of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections import Counter
from collections.abc import Iterator

from stator import events
from stator.artifacts import store
from stator.artifacts.container import Container
from stator.artifacts.entry_writer import describe, report_left_out
from stator.artifacts.site_reader import Site
from stator.artifacts.store_lookup import SLOTS, Slot, calls, key_of, release, slots
from stator.artifacts.value_writer import NotPortable

_SHARE = 0.1  # of the time of captures that writing may take before the process ends
_AT_ONCE = 4  # files of a call that are written whatever that takes


def captured() -> Iterator[tuple[str, Container]]:
    """Everything that this process has captured or loaded, by the keys under which others look it up."""
    numbers: Counter[str] = Counter()
    for call in list(calls.values()):
        with contextlib.suppress(NotPortable):
            if (site := call.site) is None or numbers[key := key_of(site, call.receiver)] == SLOTS:
                continue
            container, left_out = describe(site)
            report_left_out(left_out)
            if container.manifest["entries"]:
                yield f"{key}/{numbers[key]}", container
                numbers[key] += 1


def note_capture(site: Site, seconds: float) -> None:
    """An entry was captured: write it now, or when the process ends if writing takes too long beside capturing."""
    slot = slots.get(site.points)
    if slot is not None and store.is_written():
        slot.captured += seconds
        slot.is_new = True
        if slot.writes < _AT_ONCE or slot.written <= slot.captured * _SHARE:
            write(site.points, slot)


def end_capture(site: Site) -> None:
    """A miss is handled: write what another process waits for, and release the lease."""
    slot = slots.get(site.points)
    if slot is not None and slot.lease is not None:
        if slot.is_new and slot.lease.is_wanted():
            write(site.points, slot)
        release(site)


def write(points: object, slot: Slot) -> None:
    started = time.perf_counter()
    slot.is_new = False
    slot.writes += 1
    if (site := calls[points].site) is None:
        return
    try:
        container, left_out = describe(site, new=True)
    except NotPortable as why:  # a backend that was forced since the lookup
        events.emit(events.NotCached(site.name, str(why)))
        return
    report_left_out(left_out)
    if container.manifest["entries"]:
        slot.put(container)
    slot.written += time.perf_counter() - started


def write_rest() -> None:
    for points, slot in list(slots.items()):
        if slot is not None and slot.is_new:
            write(points, slot)


atexit.register(write_rest)
