"""Entries of another process at a site of this one.   JSON  ->  guards that decide  ->  an installed entry

In: the data of one file and a call that no entry accepts.  Out: an entry of the file whose guards accept the call,
installed; or the reason why there is none.  Data is read when a call needs it; nothing is traced or compiled.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from stator import _core, events
from stator.artifacts.container import Json
from stator.artifacts.graph_functions import content_of
from stator.artifacts.pass_reader import PassReader
from stator.artifacts.raw_steps import Data, Thing
from stator.artifacts.value_reader import Stale
from stator.artifacts.value_writer import NotPortable
from stator.breaks import Strategy
from stator.graph.state.suspended_modes import put_back
from stator.guards.global_state import settle_attention
from stator.guards.guard import MISSING, Guard, Kind
from stator.guards.guard_semantics import Unreadable, evaluate
from stator.guards.lower import Program, lower
from stator.heap.set_orders import SetOrder
from stator.host.suspended_patches import restored
from stator.settings.options import Settings
from stator.source import CallOf, Source

if TYPE_CHECKING:
    from stator.cache.nested import NestedFrames
    from stator.emit.resume.advance import Points
    from stator.shapes.policy import Policy

Place: TypeAlias = tuple[str, int, str]  # file, line, function
PLACED = (Kind.ID, Kind.TYPE_ATTR, Kind.TYPE_FIELD)  # the value is an object at a place
_type_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__


class EarlySite(Protocol):
    """A function that was given to compile(), with a call site or before it has one."""

    fn: types.FunctionType
    settings: Settings
    name: str
    stored: StoredSites | None

    @property
    def compiled(self) -> Thing: ...


class Site(EarlySite, Protocol):
    """A call site, as `capture` keeps it."""

    points: Points
    nested: NestedFrames
    shapes: Policy
    turned_off: set[Strategy]
    learned: Thing


class StoredGraph:
    """Stands for the graph of an entry that was loaded: there is one, and it is compiled."""


@dataclass
class LoadedResidual:
    """The fields of `emit.Residual` for a program that is linked already."""

    source: str
    names: dict[str, object]
    wanted: list[Source]
    graph: StoredGraph | None
    packed: int
    effects: int
    lines: list[str]
    resume: object
    graph_inputs: Sequence[object] = ()
    of_process: str = ""
    elsewhere: Sequence[SetOrder | types.CodeType] = ()
    ran: Sequence[tuple[object, bool]] = ()  # functions without guards, and whether their kernels count


@dataclass
class LoadedEntry:
    """A guard program, what runs where it holds, and what both were made from."""

    check: Thing  # _core.GuardProgram
    run: Thing
    program: Program
    guards: list[Guard]
    residual: LoadedResidual | None
    why_eager: str


class StoredEntry:
    """One entry: data until a call needs it, then `made`, or the reason against it."""

    def __init__(self, data: dict[str, Data]) -> None:
        self.data = data
        self.made: LoadedEntry | None = None
        self.why = ""
        self.where: Place | None = None  # the user's line that reads the fact
        self.is_reported = False

    def refuse(self, why: str, where: Place | None) -> None:
        """Keep the reason why a call does not use the entry."""
        self.is_reported = self.is_reported and self.why == why
        self.why, self.where = why, where

    def text(self) -> str:
        return self.why if self.where is None else f"{self.why} ({self.where[0]}:{self.where[1]} in {self.where[2]})"


class StoredSite:
    """The entries of a file for one site."""

    def __init__(self, name: str, values: PassReader, data: Data, whole: StoredCall) -> None:
        self.name, self.values, self.whole = name, values, whole
        self.entries = [StoredEntry(each) for each in data["entries"]]
        self.learned: Data = data["learned"]
        self.given: list[object] = []  # guards of entries that this process uses

    def join(self, site: Site) -> None:
        """Let a call site use these entries, and learn what changes."""
        data, memory = self.learned, site.shapes.memory
        for name, rows in data["memory"].items():
            known = getattr(memory, name)
            for source, *numbers in rows:
                try:
                    place = self.values.value(source)
                except Stale:
                    continue
                if type(known) is dict:
                    known.setdefault(place, set()).update(numbers)
                else:
                    known.add(place)
        site.turned_off.update([Strategy[name] for name in data["off"]])
        site.learned.data_dependent = site.learned.data_dependent and data["data_dependent"]
        site.learned.branches_break = site.learned.branches_break or data["branches_break"]
        add_stored(site, self)

    def take(self, bound: tuple[Thing, ...]) -> LoadedEntry | None:
        """An entry that accepts the call; None where there is none."""
        for entry in self.entries:
            made = self.made_of(entry, bound)
            if made is None:
                continue
            with put_back(), restored():
                failed = made.check.check(bound)
            if failed == -1:
                self.entries.remove(entry)
                self.given.append(made.guards)
                events.emit(events.EntryLoaded(self.name, len(made.program.checks)))
                return made
            guard = made.program.guards[failed]
            entry.refuse(f"guard failed: {guard.text()}", guard.where)
            if self.values.finds_places():
                entry.made = None  # it holds objects of this call
        return None

    def has_given(self, guards: object) -> bool:
        """Whether an entry came from here."""
        return any(each is guards for each in self.given)

    def why(self) -> str:
        """Why the newest entry of the file was not used."""
        return next((entry.text() for entry in self.entries if entry.why), "")

    def report(self) -> None:
        """Emit an event with the first reason, once."""
        entry = next((entry for entry in self.entries if entry.why), None)
        if entry is not None and not entry.is_reported:
            entry.is_reported = True
            events.emit(events.NotCached(self.name, entry.why, *(entry.where[:2] if entry.where else (None, None))))

    def made_of(self, entry: StoredEntry, bound: tuple[Thing, ...]) -> LoadedEntry | None:
        if entry.made is None:
            try:
                entry.made = self.restore(entry.data, bound)
            except Stale as stale:
                entry.refuse(str(stale), stale.where)
            except Exception as error:  # a bug of ours: the call is captured
                entry.refuse(f"it cannot be read: {type(error).__name__}: {error}", None)
        return entry.made

    def restore(self, data: dict[str, Data], bound: tuple[Thing, ...]) -> LoadedEntry:
        self.values.start_call(bound)
        self.whole.attach_once()
        guards: list[Guard] = []
        for row in data["guards"]:
            try:
                guards.append(self.guard(row, bound))
            except Stale as stale:
                stale.where = None if row[3] is None else tuple(row[3])
                raise
        if any(type(each.source) is CallOf and each.source.fn.obj is _core.attention_kernels for each in guards):
            settle_attention()
        located = [self._located(row, bound) for row in data["located"]]
        orders = [SetOrder(*map(self.values.value, each)) for each in data.get("orders", ())]
        if data.get("seed") not in (None, seed_of_hashes()) and not all([each.holds() for each in orders]):
            raise Stale("the order of a set of strings counts, and PYTHONHASHSEED was another one")
        ran = [self._ran(*each) for each in data.get("ran", ())]
        residual = None
        wanted: list[Source] = []
        packed = 0
        function = self.values.value(data["run"])
        if "residual" in data:
            text, packed, effects, has_graph = data["residual"]
            wanted = [self.values.value(source) for source in data["wanted"]]
            names = dict(getattr(function, "__globals__", {}))
            known = self.values.advances
            resume = next((known[id(each)] for each in names.values() if id(each) in known), None)
            residual = LoadedResidual(text, names, wanted, StoredGraph() if has_graph else None, packed, effects,
                                      [line[4:] for line in text.splitlines()[1:]], resume,
                                      elsewhere=[*orders, *located], ran=ran)
        lowered = lower(guards, wanted)
        program = _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, len(bound), packed)
        return LoadedEntry(program, function, lowered, guards, residual, data["why_eager"])

    def _located(self, row: Data, bound: tuple[Thing, ...]) -> types.CodeType:
        """Code at the place where it was; by its own name, or by the source of a guard."""
        number, filename, line = row
        code: Thing = self.values.found(number)
        if type(code) is not types.CodeType:
            code = self._read(code, bound)
        if type(code) is not types.CodeType or (code.co_filename, code.co_firstlineno) != (filename, line):
            raise Stale(f"the lines of {getattr(code, 'co_qualname', '?')} have moved, and the entry shows them")
        return code

    def _ran(self, target: Data, with_kernels: bool, digest: str) -> tuple[object, bool]:
        """A function that torch ran while the graph was made; it has the content that it had."""
        found = self.values.value(target)
        try:
            if content_of(found, with_kernels) == digest:
                return found, with_kernels
        except NotPortable as why:
            raise Stale(str(why)) from None
        name = found.__qualname__ if type(found) is types.FunctionType else str(found)
        raise Stale(f"{name}, which the graph calls, has other code or reads other values")

    def guard(self, row: Data, bound: tuple[Thing, ...]) -> Guard:
        number, place, data, where = row
        kind, source = Kind(number), self.values.found(place)
        if kind is Kind.ID:
            value = self.values.placed(data, lambda: self._read(source, bound))
        elif kind in PLACED:
            name = data[0]
            value = (name, self.values.placed(data[1], lambda: member_of(source.obj, name, kind)))
        else:
            value = self.values.value(data)
        return Guard(source, kind, value, None if where is None else tuple(where))  # type: ignore[arg-type]

    def _read(self, source: Source, bound: tuple[Thing, ...]) -> object:
        try:
            return evaluate(source, bound)
        except Unreadable:
            raise Stale(f"{source.text()} cannot be read") from None


def seed_of_hashes() -> str:
    """Text that differs between processes whose strings have other hashes."""
    return f"{hash('the order of a set of strings'):x}"


def member_of(cls: type, name: str, kind: Kind) -> object:
    """Read the entry of a class under a name, or one of its fields."""
    if kind is Kind.TYPE_FIELD:
        return type.__dict__[name].__get__(cls)
    return next((_class_dict(base)[name] for base in _type_mro(cls) if name in _class_dict(base)), MISSING)


class StoredCall:
    """All that a file has for one compile() call; `site` is None until a call needs the tracer."""

    def __init__(self, early: EarlySite, rows: list[list[Json]], data: Data,
                 blobs: dict[str, bytes] | None = None, values: PassReader | None = None) -> None:
        self.data = data
        self.site: Site | None = None
        self.values = values or PassReader(rows, early.fn, None, blobs or {})
        self.first = StoredSite(early.name, self.values, data["site"], self)
        self._attached = False
        if is_later(early):
            add_stored(early, self.first)
        else:
            self.open(early)  # type: ignore[arg-type]

    @property
    def has_breaks(self) -> bool:
        return bool(self.data["points"] or self.data["nested"])

    def open(self, site: Site) -> None:
        """The tracer is loaded: the call site stands for the function from now on."""
        self.site, self.values.points = site, site.points
        self.first.join(site)

    def attach_once(self) -> None:
        """Give resume points, and functions below breaks, their entries, when an entry is first read."""
        site = self.site
        if self._attached or site is None:
            return
        self._attached = True
        for states, pushes, handled, raising, data in self.data["points"]:
            try:
                found = [self.values.value(state) for state in states]
                point = site.points.point(found, tuple(pushes), handled, raising)
            except Stale:
                continue
            inner: Site = point.compiled._stator_site
            StoredSite(inner.name, self.values, data, self).join(inner)
        for number, captures, data in self.data["nested"]:
            try:
                nested = site.nested.function(self.values.found(number))
            except Stale:
                continue
            if nested is not None:
                nested.captures = captures
                inner = nested.entry._stator_site
                StoredCall(inner, [], data, values=nested_values(self.values, inner))


def nested_values(values: PassReader, site: Site) -> PassReader:
    """The objects of the file, made for the resume points of another compile() call."""
    return PassReader(values.rows, values.root, site.points, values.blobs)


class StoredSites:
    """The entries of several files for one site."""

    def __init__(self, sites: list[StoredSite]) -> None:
        self.sites = sites

    def attach(self) -> None:
        """Give resume points their entries: a file may have some of them, and none for this site."""
        for each in self.sites:
            each.whole.attach_once()

    def take(self, bound: tuple[Thing, ...]) -> LoadedEntry | None:
        self.attach()
        for each in self.sites:
            if (found := each.take(bound)) is not None:
                return found
        for each in self.sites:
            each.report()
        return None

    def has_breaks(self) -> bool:
        """Whether an entry may end in a graph break: the tracer has the parts that go on behind one."""
        return any(each.whole.has_breaks for each in self.sites)

    def open(self, site: Site) -> None:
        """Hand the entries over to a call site."""
        for each in self.sites:
            each.whole.open(site)

    def has_given(self, guards: object) -> bool:
        return any(each.has_given(guards) for each in self.sites)

    def why(self) -> str:
        return next((why for each in self.sites if (why := each.why())), "")


def is_later(site: EarlySite) -> bool:
    """Whether a function has no call site yet; asking for more than its fields would make one."""
    return hasattr(type(site), "is_later")


def add_stored(site: EarlySite, stored: StoredSite) -> None:
    if site.stored is None:
        site.stored = StoredSites([])
    site.stored.sites.append(stored)
