"""The key of a function, and the look into the store.   a miss looks there first

In: a site that misses.  Out: entries of other processes, attached to the site.  The key has the function, the class
that it is called for, settings, versions and hardware.  A key has several slots: a process reads all of them, and
writes what it has captured to one of its own.  Of processes that miss at once one captures; the others wait for its
file (`leases.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import types
import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch

from stator import events
from stator.artifacts import leases, store
from stator.artifacts.code_content import code_hash
from stator.artifacts.container import Container
from stator.artifacts.entry_files import attach_or_say, unused
from stator.artifacts.environment import process_facts, settings_facts
from stator.artifacts.raw_steps import Thing
from stator.artifacts.site_reader import EarlySite, Site, is_later
from stator.artifacts.value_writer import NotPortable, ValueWriter
from stator.host.value_kinds import is_a
from stator.settings.process_config import config
from stator.source import name_of

SLOTS = 8


class Call(NamedTuple):
    """One compile() call that has missed."""

    entry: weakref.ref[Thing]
    held: weakref.ref[type] | None  # the class of `self`

    @property
    def site(self) -> Site | None:
        """None where the entry is gone, or the class that it was made for."""
        entry = self.entry()
        return None if entry is None or self.held is not None and self.held() is None else entry._stator_site

    @property
    def receiver(self) -> type | None:
        return None if self.held is None else self.held()


class Slot:
    """Where the entries of one compile() call belong in the store."""

    def __init__(self, key: str) -> None:
        self.key, self.number = key, 0
        self.seen: dict[int, bytes] = {}  # the start of each file that was read, by number
        self.replaced: bytes | None = None  # the start of the file that the first write replaces
        self.captured = self.written = 0.0  # seconds
        self.writes = 0
        self.is_new = False  # something was captured and is not written yet
        self.is_own = False  # the file of this number is from this process
        self.lease: leases.Lease | None = None  # held while this process captures

    def stamp(self, number: int) -> bytes | None:
        return store.stamp(f"{self.key}/{number}")

    def has_changed(self) -> bool:
        """Whether another process has written since the files were read."""
        return any(self.stamp(number) not in (None, self.seen.get(number), self.replaced)
                   for number in range(min(len(self.seen) + 2, SLOTS)) if not (self.is_own and number == self.number))

    def read(self, site: EarlySite) -> bool:
        """Attach all files that are new or have changed to a site; whether there were any."""
        attached = False
        for number in range(SLOTS):
            if self.is_own and number == self.number:
                continue
            start = self.stamp(number)
            if start is not None and start == self.seen.get(number):
                continue
            container = store.get(f"{self.key}/{number}")
            if container is None:  # none, or one that is refused: the next capture replaces it
                if why := store.why_refused(f"{self.key}/{number}"):
                    unused[site.compiled] = why
                if not self.is_own:
                    self.number, self.replaced = number, start
                break
            self.seen[number] = start or b""
            attach_or_say(site, container)
            attached = True
        else:
            if not self.is_own:
                self.number, self.replaced = SLOTS - 1, self.stamp(SLOTS - 1)
        return attached

    def put(self, container: Container) -> None:
        """Write a container to a number that no other process has taken meanwhile."""
        while not self.is_own and self.number < SLOTS - 1 and self.stamp(self.number) not in (None, self.replaced):
            self.number, self.replaced = self.number + 1, None
        self.is_own = store.put(f"{self.key}/{self.number}", container) or self.is_own


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
        call = calls[owner] = Call(weakref.ref(site.compiled), weakref.ref(type(bound[0])) if is_method else None)
    if owner in slots or not store.is_used():
        return
    slots[owner] = None
    try:
        key = key_of(site, call.receiver)
    except NotPortable as why:
        events.emit(events.NotCached(site.name, str(why)))
        return
    slots[owner] = slot = Slot(key)
    slot.read(site)


def take_from_others(site: EarlySite, take: Callable[[Callable[[], bool]], bool]) -> bool:
    """Use an entry that another process has captured since, or captures now; if not, hold the lease for a capture.

    `take` calls its argument, which attaches new entries, and tries them if there are any.  A process waits for one
    capture of another one that stays alive: that takes about as long as its own, which follows if nothing fits.
    """
    owner: object = site.compiled if is_later(site) else site.points  # type: ignore[attr-defined]
    slot, shared = slots.get(owner), store.current()
    if slot is None or shared is None or site.settings.starts_eagerly or \
            torch.distributed.is_available() and torch.distributed.is_initialized():  # ranks wait for each other
        return False
    root, path = calls[owner].site, shared.lease_path(slot.key)
    if root is None or path is None or leases.is_held(path):
        return False

    def attach() -> bool:
        found = slot.read(root)
        if found and not is_later(root) and root.stored is not None:
            root.stored.attach()
        return found

    if take(attach):
        return True
    begun, has_waited = time.monotonic(), False
    while not (is_later(site) and site.stored is not None and site.stored.has_breaks()):  # the tracer is needed first
        held: leases.Lease | int | None = leases.take(path)
        if type(held) is int:
            if has_waited:
                os.close(held)
                return False
            ended, held = leases.wait_for(path, held, begun + config.artifact_wait_seconds - time.monotonic(),
                                          slot.has_changed)
            events.emit(events.CaptureAwaited(site.name, ended.value, time.monotonic() - begun))
            if ended in (leases.Ended.SILENT, leases.Ended.TIME):
                return False
            has_waited = has_waited or held is None
            if held is None:
                if take(attach):
                    return True
                continue
        if held is None:
            return False
        slot.lease = held  # type: ignore[assignment]
        if slot.has_changed() and take(attach):  # between the read and the lease
            release(site)
            return True
        return False
    return False


def release(site: EarlySite) -> None:
    """End the lease of a capture, which is written or was not made."""
    owner: object = site.compiled if is_later(site) else site.points  # type: ignore[attr-defined]
    slot = slots.get(owner)
    if slot is not None and slot.lease is not None:
        slot.lease.release()
        slot.lease = None


def key_of(site: EarlySite, receiver: type | None) -> str:
    """The function, its class, and all facts that the entries of a file have in common."""
    fn = site.fn
    forward: Thing = getattr(receiver, "forward", None)
    parts = [fn.__module__, fn.__qualname__, code_hash(fn.__code__), "" if receiver is None else
             f"{receiver.__module__}.{name_of(receiver)}", code_hash(forward.__code__)
             if is_a(forward, types.FunctionType) else "", process_facts(),
             settings_facts(site.settings, ValueWriter(fn))]
    return f"{fn.__qualname__} {hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]}"
