"""Entries of another process at a site of this one.   JSON  ->  guards that decide  ->  an installed entry

In: the data of one file and a call that no entry accepts.  Out: an entry of the file whose guards accept the call,
installed; or the reason why there is none.  Data is read when a call needs it; nothing is traced or compiled.
"""

from __future__ import annotations

import types
from dataclasses import dataclass

from stator import _core, events
from stator.artifacts.container import Json
from stator.artifacts.pass_data import PassReader
from stator.artifacts.raw_steps import Data, Thing
from stator.artifacts.site_writer import _BY_SOURCE, PLACED, Site
from stator.artifacts.value_reader import Stale
from stator.breaks import Strategy
from stator.emit.residual.residual import Residual
from stator.graph.state.suspended_modes import put_back
from stator.guards.guard import MISSING, Guard, Kind
from stator.guards.guard_semantics import Unreadable, evaluate
from stator.guards.lower import Program, lower
from stator.host.suspended_patches import restored
from stator.source import Source

_type_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__


class StoredGraph:
    """Stands for the graph of an entry that was loaded: there is one, and it is compiled."""


@dataclass
class LoadedEntry:
    """A guard program, what runs where it holds, and what both were made from."""

    check: Thing  # _core.GuardProgram
    run: Thing
    program: Program
    guards: list[Guard]
    residual: Residual | None
    why_eager: str


class StoredEntry:
    """One entry: data until a call needs it, then `made`, or the reason against it."""

    def __init__(self, data: dict[str, Data]) -> None:
        self.data = data
        self.made: LoadedEntry | None = None
        self.why = ""


class StoredSite:
    """The entries of a file for one site."""

    def __init__(self, site: Site, values: PassReader, data: Data, whole: StoredCall) -> None:
        self.site, self.values, self.whole = site, values, whole
        self.entries = [StoredEntry(each) for each in data["entries"]]
        self.given: list[object] = []  # guards of entries that this process uses
        self.learn(data["learned"])

    def learn(self, data: Data) -> None:
        memory = self.site.shapes.memory
        for name in _BY_SOURCE:
            known = getattr(memory, name)
            for source, *numbers in data["memory"].get(name, ()):
                try:
                    place = self.values.value(source)
                except Stale:
                    continue
                if type(known) is dict:
                    known.setdefault(place, set()).update(numbers)
                else:
                    known.add(place)
        self.site.turned_off.update([Strategy[name] for name in data["off"]])
        self.site.learned.data_dependent = self.site.learned.data_dependent and data["data_dependent"]
        self.site.learned.branches_break = self.site.learned.branches_break or data["branches_break"]

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
                events.emit(events.EntryLoaded(self.site.name, len(made.program.checks)))
                return made
            entry.why = f"guard failed: {made.program.guards[failed].text()}"
            if self.values.finds_places():
                entry.made = None  # it holds objects of this call
        return None

    def has_given(self, guards: object) -> bool:
        """Whether an entry came from here."""
        return any(each is guards for each in self.given)

    def why(self) -> str:
        """Why the newest entry of the file was not used."""
        return next((entry.why for entry in self.entries if entry.why), "")

    def made_of(self, entry: StoredEntry, bound: tuple[Thing, ...]) -> LoadedEntry | None:
        if entry.made is None:
            try:
                entry.made = self.restore(entry.data, bound)
            except Stale as stale:
                entry.why = str(stale)
            except Exception as error:  # a bug of ours: the call is captured
                entry.why = f"it cannot be read: {type(error).__name__}: {error}"
                events.emit(events.NotCached(self.site.name, entry.why))
        return entry.made

    def restore(self, data: dict[str, Data], bound: tuple[Thing, ...]) -> LoadedEntry:
        self.values.start_call(bound)
        self.whole.attach()
        guards = [self.guard(row, bound) for row in data["guards"]]
        for number, filename, line in data["located"]:
            code = self._read(self.values.found(number), bound)
            if type(code) is not types.CodeType or (code.co_filename, code.co_firstlineno) != (filename, line):
                raise Stale(f"the lines of {getattr(code, 'co_qualname', '?')} have moved, and the entry shows them")
        residual = None
        wanted: list[Source] = []
        packed = 0
        function = self.values.value(data["run"])
        if "residual" in data:
            text, packed, effects, has_graph = data["residual"]
            wanted = [self.values.value(source) for source in data["wanted"]]
            graph: Thing = StoredGraph() if has_graph else None
            names = dict(getattr(function, "__globals__", {}))
            known = self.values.advances
            resume = next((known[id(each)] for each in names.values() if id(each) in known), None)
            residual = Residual(text, names, wanted, graph, [], packed, effects,
                                [line[4:] for line in text.splitlines()[1:]], resume)
        lowered = lower(guards, wanted)
        program = _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, len(bound), packed)
        return LoadedEntry(program, function, lowered, guards, residual, data["why_eager"])

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


def member_of(cls: type, name: str, kind: Kind) -> object:
    """Read the entry of a class under a name, or one of its fields."""
    if kind is Kind.TYPE_FIELD:
        return type.__dict__[name].__get__(cls)
    return next((_class_dict(base)[name] for base in _type_mro(cls) if name in _class_dict(base)), MISSING)


class StoredCall:
    """All that a file has for one compile() call."""

    def __init__(self, site: Site, rows: list[list[Json]], data: Data,
                 blobs: dict[str, bytes] | None = None, values: PassReader | None = None) -> None:
        self.site, self.data = site, data
        self.values = values or PassReader(rows, site.fn, site.points, blobs or {})
        self._attached = False
        add_stored(site, StoredSite(site, self.values, data["site"], self))

    def attach(self) -> None:
        """Give resume points, and functions below breaks, their entries; once, when an entry is first read."""
        if self._attached:
            return
        self._attached = True
        for states, pushes, handled, raising, data in self.data["points"]:
            try:
                found = [self.values.value(state) for state in states]
                point = self.site.points.point(found, tuple(pushes), handled, raising)
            except Stale:
                continue
            inner = point.compiled._stator_site
            add_stored(inner, StoredSite(inner, self.values, data, self))
        for number, captures, data in self.data["nested"]:
            try:
                nested = self.site.nested.function(self.values.found(number))
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

    def take(self, bound: tuple[Thing, ...]) -> LoadedEntry | None:
        for each in self.sites:
            each.whole.attach()  # resume points may have entries in files without one for this site
        return next((found for each in self.sites if (found := each.take(bound)) is not None), None)

    def has_given(self, guards: object) -> bool:
        return any(each.has_given(guards) for each in self.sites)

    def why(self) -> str:
        return next((why for each in self.sites if (why := each.why())), "")


def add_stored(site: Site, stored: StoredSite) -> None:
    if site.stored is None:
        site.stored = StoredSites([])
    site.stored.sites.append(stored)
