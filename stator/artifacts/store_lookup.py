"""Use the store of the process.   a miss looks there first; a capture is written there

In: a site that misses, or that has captured.  Out: entries of other processes, attached to the site; a file with the
entries of this process.  The key has the function, the class that it is called for, settings, versions and hardware.
A key has several slots: a process reads all of them, and writes what it has captured to one of its own.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import time
import types
import weakref

from stator import events
from stator.artifacts import store
from stator.artifacts.code_content import code_hash
from stator.artifacts.entry_files import attach, describe
from stator.artifacts.environment import process_facts, settings_facts
from stator.artifacts.raw_steps import Thing
from stator.artifacts.site_writer import Site
from stator.artifacts.value_writer import NotPortable, ValueWriter
from stator.host.value_kinds import is_a
from stator.source import name_of

SLOTS = 8
_SHARE = 0.1  # of the time of captures that writing may take before the process ends


class Slot:
    """Where the entries of one compile() call belong in the store."""

    def __init__(self, site: Site, key: str, number: int) -> None:
        self.site, self.key, self.number = site, key, number
        self.captured = self.written = 0.0  # seconds
        self.is_new = False  # something was captured and is not written yet


_slots: weakref.WeakKeyDictionary[object, Slot | None] = weakref.WeakKeyDictionary()  # by the resume points of a call


def look_up(site: Site, bound: tuple[Thing, ...]) -> None:
    """Attach what the store has for a site, once."""
    if site.points in _slots or store.current() is None:
        return
    _slots[site.points] = None
    try:
        key = key_of(site, bound)
    except NotPortable as why:
        events.emit(events.NotCached(site.name, str(why)))
        return
    number = 0
    while number < SLOTS and (container := store.get(f"{key}/{number}")) is not None:
        why_not = attach(site, container)
        if why_not is not None:
            events.emit(events.NotCached(site.name, why_not))
        number += 1
    _slots[site.points] = Slot(site, key, min(number, SLOTS - 1))


def key_of(site: Site, bound: tuple[Thing, ...]) -> str:
    """The function, its class, and all facts that the entries of a file have in common."""
    fn = site.fn
    subject = type(bound[0]) if bound and fn.__code__.co_varnames[:1] == ("self",) else None
    forward: Thing = getattr(subject, "forward", None)
    parts = [fn.__module__, fn.__qualname__, code_hash(fn.__code__), "" if subject is None else
             f"{subject.__module__}.{name_of(subject)}", code_hash(forward.__code__)
             if is_a(forward, types.FunctionType) else "", process_facts(),
             settings_facts(site.settings, ValueWriter(fn))]
    return f"{fn.__qualname__} {hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]}"


def note_capture(site: Site, seconds: float) -> None:
    """An entry was captured: write it now, or when the process ends if writing takes too long beside capturing."""
    slot = _slots.get(site.points)
    if slot is not None:
        slot.captured += seconds
        slot.is_new = True
        if slot.written <= slot.captured * _SHARE:
            write(slot)


def write(slot: Slot) -> None:
    started = time.perf_counter()
    slot.is_new = False
    container, left_out = describe(slot.site, new=True)
    for each in left_out:
        events.emit(events.NotCached(each.site, each.why, *(each.where[:2] if each.where else (None, None))))
    if container.manifest["entries"]:
        store.put(f"{slot.key}/{slot.number}", container)
    slot.written += time.perf_counter() - started


def write_rest() -> None:
    for slot in list(_slots.values()):
        if slot is not None and slot.is_new:
            write(slot)


atexit.register(write_rest)
