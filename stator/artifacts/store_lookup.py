"""Look into the store of the process.   a miss looks there first

In: a site that misses.  Out: entries of other processes, attached to the site.  The key has the function, the class
that it is called for, settings, versions and hardware.  A key has several slots: a process reads all of them, and
writes what it has captured to one of its own.
"""

from __future__ import annotations

import hashlib
import json
import types
import weakref
from typing import NamedTuple

from stator import events
from stator.artifacts import store
from stator.artifacts.code_content import code_hash
from stator.artifacts.entry_files import attach_or_say
from stator.artifacts.environment import process_facts, settings_facts
from stator.artifacts.raw_steps import Thing
from stator.artifacts.site_reader import EarlySite, Site, is_later
from stator.artifacts.value_writer import NotPortable, ValueWriter
from stator.host.value_kinds import is_a
from stator.source import name_of

SLOTS = 8


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


# By the resume points of a call, which all its segments share; by its entry until there are any.
calls: weakref.WeakKeyDictionary[object, Call] = weakref.WeakKeyDictionary()
slots: weakref.WeakKeyDictionary[object, Slot | None] = weakref.WeakKeyDictionary()


def open_lookup(site: Site) -> None:
    """The tracer is loaded: `site` stands for its entry from now on."""
    if site.compiled in calls:
        calls[site.points] = calls.pop(site.compiled)
    if site.compiled in slots:
        slots[site.points] = slots.pop(site.compiled)


def look_up(site: EarlySite, bound: tuple[Thing, ...]) -> None:
    """Attach what other processes have captured for a site, once."""
    owner: object = site.compiled if is_later(site) else site.points  # type: ignore[attr-defined]
    call = calls.get(owner)
    if call is None:
        is_method = bool(bound) and site.fn.__code__.co_varnames[:1] == ("self",)
        call = calls[owner] = Call(weakref.ref(site.compiled), type(bound[0]) if is_method else None)
    if owner in slots or not store.is_used():
        return
    slots[owner] = None
    try:
        key = key_of(site, call.receiver)
    except NotPortable as why:
        events.emit(events.NotCached(site.name, str(why)))
        return
    number = 0
    while number < SLOTS and (container := store.get(f"{key}/{number}")) is not None:
        attach_or_say(site, container)
        number += 1
    slots[owner] = Slot(key, min(number, SLOTS - 1))


def key_of(site: EarlySite, receiver: type | None) -> str:
    """The function, its class, and all facts that the entries of a file have in common."""
    fn = site.fn
    forward: Thing = getattr(receiver, "forward", None)
    parts = [fn.__module__, fn.__qualname__, code_hash(fn.__code__), "" if receiver is None else
             f"{receiver.__module__}.{name_of(receiver)}", code_hash(forward.__code__)
             if is_a(forward, types.FunctionType) else "", process_facts(),
             settings_facts(site.settings, ValueWriter(fn))]
    return f"{fn.__qualname__} {hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]}"


