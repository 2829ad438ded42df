"""A recorded module call in terms of the module.   a segment of the trace  ->  a template for modules like it

Out: the facts it relied on, as a guard program with the module as its one argument; its graph inputs, nodes and value.
`Unlike`: the segment cannot be expressed in these terms, and the module is interpreted.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator import _core
from stator.graph.fx.nodes import Stretch, name_parts
from stator.guards.guard import Guard, Kind
from stator.guards.guard_set import GuardSet, Pattern, PatternInstance
from stator.guards.lower import lower
from stator.heap.heap import Heap
from stator.heap.tracker import MOVING, ShadowKind
from stator.interp.services import VM
from stator.source import CallOf, DictOf, Local, Pinned, Source, parents, root_of

RELATIONS = frozenset({Kind.ALIAS, Kind.NOT_ALIAS})
_NAMING = frozenset({Kind.ID, Kind.NOT_ID, Kind.KEYS, Kind.ABSENT, Kind.PRESENT, Kind.SET_EQUALS, Kind.EQUALS,
                     Kind.FRESH_CALL})
_NONE: set[Any] = set()
SELF = Local("self", 0)


class FactIndex:
    """The facts of one trace so far."""

    def __init__(self, heap: Heap) -> None:
        self.heap = heap
        self.below: dict[Source, list[Source]] = {}
        self.guards: dict[Source, list[tuple[int, Guard]]] = {}
        self.trackers: dict[Source, list[tuple[int, Any]]] = {}
        self.functions: dict[Source, list[int]] = {}  # ids of what stands for itself
        self.naming: dict[int, int] = {}  # id of an object that a guard names -> the first such guard
        self.kept: dict[int, Any] = {}
        self.glanced: dict[Source, list[Any]] = {}  # empty tables of which nothing else was asked
        self.replayed: dict[Source, list[Any]] = {}  # objects that a replay has seen at a place
        self.relations: dict[Source, set[tuple[Source, Kind, Source]]] = {}
        self.taken = [0, 0, 0, 0, 0, 0]
        self.related_taken = 0

    def update(self) -> None:
        heap = self.heap
        guards, trackers, functions, kept, replays, glanced = self.taken
        for number, entry in enumerate(itertools.islice(heap.guards.arrived(), guards, None), guards):
            for guard in (entry,) if isinstance(entry, Guard) else entry.guards():
                self._note(self.guards, guard.source, (number, guard))
                if guard.kind in RELATIONS:
                    self._note(self.guards, guard.value, (number, guard))
                elif guard.kind is Kind.PARTITION:
                    for place in guard.value.places[1:]:
                        self._note(self.guards, place.source, (number, guard))
                elif guard.kind in _NAMING:
                    self._name(guard.value, number)
        for number in range(trackers, len(heap.trackers)):
            self._note(self.trackers, heap.trackers[number].source, (number, heap.trackers[number]))
        for key, source in itertools.islice(heap.sources.items(), functions, None):
            self._note(self.functions, source, key)
        self.kept.update((id(value), value) for value in itertools.islice(heap.kept, kept, None))
        for instance, seen in itertools.islice(heap.replayed.plays, replays, None):
            for image, place in seen:
                source = instance.source(place)
                self.replayed.setdefault(source, []).append(image)
                self.link(source)
        for table, source in itertools.islice(heap.glanced, glanced, None):
            self._note(self.glanced, source, table)
        self.taken = [len(heap.guards), len(heap.trackers), len(heap.sources), len(heap.kept), len(heap.replayed.plays),
                      len(heap.glanced)]

    def _note(self, table: dict[Source, list[Any]], source: Source, item: object) -> None:
        known = table.get(source)
        if known is None:
            known = table[source] = []
            self.link(source)
        known.append(item)

    def link(self, source: Source) -> None:
        below = self.below
        if source in below:
            return
        below[source] = []
        for parent in (source.base,) if type(source) is not CallOf else parents(source):
            if parent is not None:
                if parent not in below:
                    self.link(parent)
                below[parent].append(source)

    def _name(self, value: object, number: int) -> None:
        if type(value) is tuple or type(value) is frozenset:
            for item in value:
                self._name(item, number)
        else:
            self.naming.setdefault(id(value), number)

    def related(self, source: Source) -> set[tuple[Source, Kind, Source]]:
        """Known relations of a place: others that hold the same object, or do not."""
        guards = self.heap.guards
        for guard in itertools.islice(guards.arrived(), self.related_taken, None):  # no pattern holds such a fact
            if type(guard) is Guard and guard.kind in RELATIONS:
                for each in (guard.source, guard.value):
                    self.relations.setdefault(each, set()).add((guard.source, guard.kind, guard.value))
        self.related_taken = len(guards)
        return self.relations.get(source, _NONE)

    def under(self, source: Source) -> list[Source]:
        """The source and everything that starts at it."""
        found: dict[Source, None] = {}
        todo = [source]
        while todo:
            each = todo.pop()
            if each not in found:
                found[each] = None
                todo += self.below.get(each, ())
        return list(found)


class Unlike(Exception):
    """The stretch cannot be replayed, or not for this module."""


@dataclass
class Relation:
    """A guard on two sources, or on the answer of a call: the numbers of its sources; None outside the module."""

    guard: Guard
    source: int | None
    other: int | None = None

    def moved_to(self, instance: PatternInstance) -> Guard:
        """The guard, of another module."""
        guard = self.guard
        return guard.moved(guard.source if self.source is None else instance.source(self.source),
                           guard.value if self.other is None else instance.source(self.other))


@dataclass
class Holding:
    """An object that the trace has met below the module: which place it was read from, and its first record."""

    place: int
    tracker: Any  # None for a function, or for what an inner replay has seen
    original: Any


@dataclass
class Template:
    """A segment, ready to be played for another module."""

    segment: Any
    source: Source
    pattern: Pattern  # the facts about the module and what it holds
    relations: list[Relation] = field(default_factory=list)  # those facts that no pattern can hold
    holdings: list[Holding] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # of the holdings
    # (number of the holding, the first one's GraphInput, what its name adds to the module's)
    inputs: list[tuple[int, Any, str | None]] = field(default_factory=list)
    tensors: list[tuple[int, bool]] = field(default_factory=list)  # holdings that are tensors; whether new inputs
    program: Any = None
    lowered: Any = None  # what the program was made from, for whoever asks which fact failed
    stretch: Any = None

    def related(self, instance: PatternInstance) -> set[tuple[Source, Kind, Source]]:
        """How the objects of a module are related to each other, and to those of others."""
        found = [each.moved_to(instance) for each in self.relations if each.guard.kind in RELATIONS]
        return {(guard.source, guard.kind, guard.value) for guard in found}


def build(vm: VM, segment: Any, changed: set[int], index: FactIndex) -> Template:
    """The template of a finished segment; `changed`: the records of objects that the program has changed."""
    index.update()
    found = index.under(segment.source)
    template = Template(segment, segment.source, Pattern(segment.source, set(found)))
    collect_holdings(vm, template, changed, index, found)
    collect_facts(template, index, found)
    collect_inputs(vm, template)
    template.stretch = Stretch(vm.recorder.graph, segment.nodes())
    template.program = guard_program(vm, template)
    template.places = [holding.place for holding in template.holdings]
    template.pattern.settle()
    return template


def collect_holdings(vm: VM, template: Template, changed: set[int], index: FactIndex, found: list[Source]) -> None:
    last = template.segment.end.trackers
    for number, tracker in [item for source in found for item in index.trackers.get(source, ())]:
        if number < last and tracker.part_of is None:
            if tracker.shape in MOVING or id(tracker) in changed or id(tracker.standin) in template.segment.objects:
                raise Unlike(f"it reads a {type(tracker.original).__name__}")
            template.holdings.append(Holding(template.pattern.number(tracker.source), tracker, tracker.original))
    met = {id(holding.original) for holding in template.holdings}
    for source in found:
        for table in index.glanced.get(source, ())[:1]:
            if id(table) not in met and id(table) not in vm.heap.replayed.objects:
                template.holdings.append(Holding(template.pattern.number(source), None, table))
        for original in index.replayed.get(source, ()):
            if id(original) in vm.heap.replayed.objects:
                template.holdings.append(Holding(template.pattern.number(source), None, original))
        for key in index.functions.get(source, ()) if type(source) is not DictOf else ():  # its owner is held
            if key not in index.kept:
                raise Unlike("it reads a value that stands for itself")
            template.holdings.append(Holding(template.pattern.number(source), None, index.kept[key]))


def collect_facts(template: Template, index: FactIndex, found: list[Source]) -> None:
    last = template.segment.end.guards
    for holding in template.holdings:
        if index.naming.get(id(holding.original), last) < last:
            raise Unlike("a fact names an object of the module")
    guards = {id(guard): guard for source in found for number, guard in index.guards.get(source, ()) if number < last}
    for guard in guards.values():
        if guard.kind is Kind.SHAPE or guard.kind is Kind.VALUES or guard.kind is Kind.PARTITION:
            raise Unlike("it relies on numbers of tensors, or on which places are one")
        concerned = guard.source in template.pattern.inside
        related = guard.kind in RELATIONS and guard.value in template.pattern.inside
        place = template.pattern.number(guard.source) if concerned else None
        if place is not None and guard.kind not in RELATIONS and starts_at(guard.source, template.source):
            template.pattern.facts.append((guard, place))
        else:
            template.relations.append(Relation(guard, place, template.pattern.number(guard.value) if related else None))


def starts_at(source: Source, root: Source) -> bool:
    """Whether the one is reached from the other step by step, not through the answer of a call."""
    step: Source | None = source
    while step is not None and step.depth > root.depth:
        step = step.base
    return step == root


def collect_inputs(vm: VM, template: Template) -> None:
    places = {id(holding.tracker): number for number, holding in enumerate(template.holdings)}
    for each in vm.recorder.inputs[template.segment.begin.inputs:template.segment.end.inputs]:
        tracker = vm.heap.by_standin.get(id(each.fake))
        if each.boxed or each.tensor is None or tracker is None or tracker.shape is not ShadowKind.TENSOR \
                or type(each.fake) is not FakeTensor:
            raise Unlike("it makes an input of its own")
        if id(tracker) in places:
            template.inputs.append((places[id(tracker)], each, suffix_of(tracker.source, template.source)))
        elif each.source in template.pattern.inside:
            raise Unlike("an input that has no record")
    own = {number for number, _, _ in template.inputs}
    for number, holding in enumerate(template.holdings):
        if holding.tracker is not None and holding.tracker.shape is ShadowKind.TENSOR:
            if holding.original.__dict__:
                raise Unlike("a tensor with attributes of its own")
            template.tensors.append((number, number in own))


def suffix_of(source: Source, root: Source) -> str | None:
    """How the name of a source's input goes on after that of the module; None where it does not begin with it."""
    text, start = source.text(), root.text()
    rest = text[len(start):] if starts_at(source, root) and text.startswith(start) else ""
    return name_parts(rest) if rest and name_parts(rest[0]) != rest[0] else None


def guard_program(vm: VM, template: Template) -> Any:
    """The facts as a program on the module; `values` answers the objects that it holds."""
    instance = PatternInstance(template.pattern, SELF)
    outside = {tracker.source: tracker for tracker in vm.heap.trackers} if template.relations else {}
    guards = GuardSet()
    for each in template.relations:
        value = each.guard.value
        if each.guard.kind in RELATIONS:
            value = fixed(value, outside) if each.other is None else instance.source(each.other)
        source = fixed(each.guard.source, outside) if each.source is None else instance.source(each.source)
        guards.add(Guard(source, each.guard.kind, value, each.guard.where))
    wanted = [instance.source(holding.place) for holding in template.holdings]
    lowered = template.lowered = lower(guards, wanted, [instance])
    return _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, 1, 0)


def fixed(source: Source, outside: dict[Source, Any]) -> Source:
    """A source that does not lead through the module, as the very object it names now."""
    tracker = outside.get(source)
    if tracker is not None:
        return Pinned(tracker.original)
    if type(root_of(source)) is not Pinned:
        raise Unlike("it is related to something that has no record")
    return source
