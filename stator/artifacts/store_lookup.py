"""Use the store of the process.   a miss looks there first; a capture is written there

In: a site that misses, or that has captured.  Out: entries of other processes, attached to the site; a file with the
entries of this process.  The key has the function, the class that it is called for, settings, versions and hardware.
A key has several slots: a process reads all of them, and writes what it has captured to one of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import time
import types
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from stator import events
from stator.artifacts import store
from stator.artifacts.code_content import code_hash
from stator.artifacts.container import Container
from stator.artifacts.entry_files import attach_or_say, describe
from stator.artifacts.environment import process_facts, settings_facts
from stator.artifacts.raw_steps import Thing
from stator.artifacts.site_writer import LeftOut, Site
from stator.artifacts.value_writer import NotPortable, ValueWriter
from stator.host.value_kinds import is_a
from stator.source import name_of

SLOTS = 8
_SHARE = 0.1  # of the time of captures that writing may take before the process ends


class Call(NamedTuple):
    """One compile() call that has missed."""

    entry: weakref.ref[Thing]
    receiver: type | None  # the class of `self`

    @property
    def site(self) -> Site | None:
        entry = self.entry()
        return None if entry is None else entry._stator_site


class Slot:
    """Where the entries of one compile() call belong in the store."""

    def __init__(self, key: str, number: int) -> None:
        self.key, self.number = key, number
        self.captured = self.written = 0.0  # seconds
        self.is_new = False  # something was captured and is not written yet


# By the resume points of a call, which all its segments share.
_calls: weakref.WeakKeyDictionary[object, Call] = weakref.WeakKeyDictionary()
_slots: weakref.WeakKeyDictionary[object, Slot | None] = weakref.WeakKeyDictionary()


def look_up(site: Site, bound: tuple[Thing, ...]) -> None:
    """Attach what other processes have captured for a site, once."""
    call = _calls.get(site.points)
    if call is None:
        is_method = bool(bound) and site.fn.__code__.co_varnames[:1] == ("self",)
        call = _calls[site.points] = Call(weakref.ref(site.compiled), type(bound[0]) if is_method else None)
    if site.points in _slots or not store.is_used():
        return
    _slots[site.points] = None
    try:
        key = key_of(site, call.receiver)
    except NotPortable as why:
        events.emit(events.NotCached(site.name, str(why)))
        return
    number = 0
    while number < SLOTS and (container := store.get(f"{key}/{number}")) is not None:
        attach_or_say(site, container)
        number += 1
    _slots[site.points] = Slot(key, min(number, SLOTS - 1))


def key_of(site: Site, receiver: type | None) -> str:
    """The function, its class, and all facts that the entries of a file have in common."""
    fn = site.fn
    forward: Thing = getattr(receiver, "forward", None)
    parts = [fn.__module__, fn.__qualname__, code_hash(fn.__code__), "" if receiver is None else
             f"{receiver.__module__}.{name_of(receiver)}", code_hash(forward.__code__)
             if is_a(forward, types.FunctionType) else "", process_facts(),
             settings_facts(site.settings, ValueWriter(fn))]
    return f"{fn.__qualname__} {hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]}"


def captured() -> Iterator[tuple[str, Container]]:
    """Everything that this process has captured or loaded, by the keys under which others look it up."""
    numbers: Counter[str] = Counter()
    for call in list(_calls.values()):
        with contextlib.suppress(NotPortable):
            if (site := call.site) is None or numbers[key := key_of(site, call.receiver)] == SLOTS:
                continue
            container, left_out = describe(site)
            report_left_out(left_out)
            if container.manifest["entries"]:
                yield f"{key}/{numbers[key]}", container
                numbers[key] += 1


def report_left_out(left_out: list[LeftOut]) -> None:
    for each in left_out:
        events.emit(events.NotCached(each.site, each.why, *(each.where[:2] if each.where else (None, None))))


def note_capture(site: Site, seconds: float) -> None:
    """An entry was captured: write it now, or when the process ends if writing takes too long beside capturing."""
    slot = _slots.get(site.points)
    if slot is not None:
        slot.captured += seconds
        slot.is_new = True
        if slot.written <= slot.captured * _SHARE:
            write(site.points, slot)


def write(points: object, slot: Slot) -> None:
    started = time.perf_counter()
    slot.is_new = False
    if (site := _calls[points].site) is None:
        return
    container, left_out = describe(site, new=True)
    report_left_out(left_out)
    if container.manifest["entries"]:
        store.put(f"{slot.key}/{slot.number}", container)
    slot.written += time.perf_counter() - started


def write_rest() -> None:
    for points, slot in list(_slots.items()):
        if slot is not None and slot.is_new:
            write(points, slot)


atexit.register(write_rest)
