"""Entries as data.   a site: entries, resume points, functions below breaks, learned shapes  ->  JSON

In: a call site and what was captured at it.  Out: JSON for `site_reader.py`, and of each entry that is left out the
first fact that has no portable form, with the user's line.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Protocol

from stator.artifacts.container import Json
from stator.artifacts.graph_functions import content_of, has_pure_kernels, unguarded
from stator.artifacts.pass_data import PassWriter
from stator.artifacts.raw_steps import Data, Thing
from stator.artifacts.site_reader import LoadedResidual, Site, seed_of_hashes
from stator.artifacts.value_writer import NotPortable, is_content, namespace_name
from stator.emit.residual.eager_calls import EagerEntry
from stator.emit.resume.resume_points import ResumePoint
from stator.guards.guard import Guard, Kind
from stator.heap.set_orders import SetOrder
from stator.host.value_kinds import is_a
from stator.shapes.policy import Memory
from stator.source import Local, Pinned, TypeOf, root_of

_SINGLETONS = (None, True, False, ..., NotImplemented)
_BY_SOURCE = [each.name for each in fields(Memory) if each.name not in ("foreseen", "contents")]


class Entry(Protocol):
    """The record of an installed entry, as `capture` keeps it."""

    guards: Sequence[Guard]
    residual: Thing
    why_eager: str


@dataclass(frozen=True)
class LeftOut:
    """An entry that cannot be stored."""

    site: str
    why: str
    where: tuple[str, int, str] | None

    def text(self) -> str:
        place = "" if self.where is None else f" ({self.where[0]}:{self.where[1]} in {self.where[2]})"
        return f"{self.site}: {self.why}{place}"


class SiteWriter:
    """Writes all that one compile() call has captured; `new`: without entries that were loaded."""

    def __init__(self, site: Site, new: bool = False) -> None:
        self.new = new
        self.values = PassWriter(site.fn)
        self.left_out: list[LeftOut] = []
        self.entries = 0
        self._note_functions(site)
        self.data = self.call(site)

    def _note_functions(self, site: Site) -> None:
        """Add functions and classes first: the names of other objects, and of code at breaks, start from these."""
        sites = [site, *[each._stator_site for each in site.points.entries()]]
        for each in [*sites, *[nested.entry._stator_site for nested in list(site.nested.met.values())]]:
            for guard in [guard for _, _, tag in each.compiled.entries() if tag is not None for guard in tag.guards]:
                self._note(guard)

    def _note(self, guard: Guard) -> None:
        root = root_of(guard.source)
        if guard.kind is Kind.ID and type(root) is Local:
            self.values.places.setdefault(id(guard.value), guard.source)
        elif guard.kind is Kind.TYPE and type(root) is Local:
            self.values.places.setdefault(id(guard.value), TypeOf(guard.source))
        if type(root) is not Pinned or type(root.obj) not in (types.FunctionType, types.ModuleType, dict) \
                and not is_a(root.obj, type):
            return
        if type(guard.value) is types.CodeType:
            self.values.codes.setdefault(id(guard.value), root.obj)
        if type(root.obj) is not dict or namespace_name(root.obj) is not None:
            with contextlib.suppress(NotPortable):
                self.values.number(root.obj)

    def call(self, site: Site) -> Json:
        """A compile() call: its first site, its resume points, and functions that were entered below its breaks."""
        whole: dict[str, Json] = {"site": self.site(site), "points": [], "nested": []}
        for point in list(site.points.known.values()):
            self._added(whole["points"], point.name, functools.partial(self.point, point))
        for nested in list(site.nested.met.values()):
            inner = nested.entry._stator_site
            self._added(whole["nested"], inner.name, functools.partial(self.nested, inner, nested.captures))
        return whole

    def nested(self, site: Site, captures: bool) -> Json:
        return [self.values.number(site.fn), captures, self.call(site)]

    def _added(self, rows: Data, name: str, write: Callable[[], Json]) -> None:
        try:
            rows.append(write())
        except NotPortable as why:
            self.left_out.append(LeftOut(name, str(why), why.where))

    def point(self, point: ResumePoint) -> Json:
        states = [self.values.value(state) for state in point.states]
        return [states, list(point.pushes), point.handled, point.raising, self.site(point.compiled._stator_site)]

    def site(self, site: Site) -> Json:
        """The entries of a site, newest first, and what it has learned."""
        rows: list[Json] = []
        for _, function, tag in site.compiled.entries():
            if tag is None or self.new and site.stored is not None and site.stored.has_given(tag.guards):
                continue
            self._added(rows, site.name, functools.partial(self.entry, function, tag))
        self.entries += len(rows)
        return {"name": site.name, "entries": rows, "learned": self.learned(site)}

    def learned(self, site: Site) -> Json:
        """Sizes and numbers that have changed; those of values without a portable name are left out."""
        memory, found = site.shapes.memory, {}
        for name in _BY_SOURCE:
            known = getattr(memory, name)
            rows: list[Json] = []
            for source in known:
                try:
                    rows.append([self.values.value(source), *(sorted(known[source]) if type(known) is dict else ())])
                except NotPortable:
                    continue
            if rows:
                found[name] = rows
        return {"memory": found, "off": sorted([each.name for each in site.turned_off]),
                "data_dependent": site.learned.data_dependent, "branches_break": site.learned.branches_break}

    # ------------------------------------------------------------------ one entry

    def entry(self, function: object, tag: Entry) -> Json:
        residual = tag.residual
        guards = [self.guard(guard) for guard in tag.guards if not is_of_polyfill(guard)]
        try:
            row: dict[str, Json] = {"guards": guards, "why_eager": tag.why_eager, "located": self.lines(function, tag)}
            if residual is not None:
                if residual.of_process:
                    raise NotPortable(residual.of_process)
                if orders := [each for each in residual.elsewhere if type(each) is SetOrder]:
                    row["seed"] = seed_of_hashes()
                    row["orders"] = [[*map(self.values.value, astuple(each))] for each in orders]
                if residual.resume is not None:
                    self.values.advances[id(residual.resume.target)] = residual.resume
                if ran := self.ran(residual):
                    row["ran"] = ran
                row["wanted"] = [self.values.value(source) for source in residual.wanted]
                row["residual"] = [residual.source, residual.packed, residual.effects, residual.graph is not None]
            row["run"] = self.values.value(function)
        except NotPortable as why:
            why.where = why.where or next((guard.where for guard in tag.guards if guard.where is not None), None)
            raise
        return row

    def ran(self, residual: Thing) -> Data:
        """Functions of the user that torch has run on fakes, which no guard reads: by their content."""
        if type(residual) is LoadedResidual:
            found = residual.ran
        else:
            found = [(each, has_pure_kernels(each)) for each in unguarded(residual.graph)] if residual.graph else []
        return [[self.values.value(each), pure, content_of(each, pure)] for each, pure in found]

    def guard(self, guard: Guard) -> Json:
        try:
            return [int(guard.kind), self.values.number(guard.source), self.expected(guard),
                    None if guard.where is None else list(guard.where)]
        except NotPortable as why:
            why.where = why.where or guard.where
            raise

    def expected(self, guard: Guard) -> Json:
        value = guard.value
        if guard.kind is Kind.ID:
            return self.values.identity(value)
        if guard.kind in (Kind.TYPE_ATTR, Kind.TYPE_FIELD):
            return [value[0], self.values.identity(value[1])]
        if guard.kind is Kind.NOT_ID and is_content(value) and value not in _SINGLETONS:
            raise NotPortable("a constant that is told apart by identity")
        return self.values.value(value)

    def lines(self, function: object, tag: Entry) -> Json:
        """Functions whose place in their file the entry relies on: it prints, warns, reads or compares lines."""
        codes = [guard for guard in tag.guards if guard.kind is Kind.ID and type(guard.value) is types.CodeType]
        text = "" if tag.residual is None else tag.residual.source
        read = [each for each in tag.residual.elsewhere if type(each) is types.CodeType] if tag.residual else []
        expects = type(function) is EagerEntry and function.expected is not None
        shown = [(guard.source, guard.value) for guard in codes if expects or repr(guard.value.co_filename) in text]
        return [[self.values.number(place), code.co_filename, code.co_firstlineno]
                for place, code in [*shown, *[(each, each) for each in read]]]


def is_of_polyfill(guard: Guard) -> bool:
    """Whether a guard compares a name of Stator's own polyfills: the version of Stator is a fact of the whole file."""
    root = root_of(guard.source)
    name = namespace_name(root.obj) if type(root) is Pinned and type(root.obj) is dict else None
    return name is not None and name.startswith(("stator.interp.", "stator.library."))
