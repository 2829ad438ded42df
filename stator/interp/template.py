"""What a call of a module did, in terms of that module.   a recorded segment  ->  a template for modules like it

In: the stretch of the trace between the entry and the return of a module's call.  Out: the facts it relied on, as a
guard program whose one argument is the module; the graph inputs it has read; its nodes; its value.  By the law that
every outside fact a trace uses is guarded, a module that passes this program is traced alike, its own parameters in the
place of the first one's.  What cannot be said in these terms raises `Unlike`: the module is then traced as ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator import _core
from stator.graph.copying import Stretch
from stator.guards.guard import Guard, Kind
from stator.guards.guard_set import GuardSet
from stator.guards.lower import lower
from stator.heap.tracker import MOVING, Shape
from stator.interp.fact_index import RELATIONS, FactIndex
from stator.source import CallOf, DictOf, Index, Key, Local, Pinned, Source, parents, root_of, with_base

_NOTHING = object()
SELF = Local("self", 0)


class Unlike(Exception):
    """The stretch cannot be replayed, or not for this module."""


@dataclass
class Fact:
    """A guard with the numbers of its sources in the template; None for a source that does not lead through it."""

    guard: Guard
    source: int | None
    other: int | None = None


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
    sources: list[Source] = field(default_factory=list)  # numbered, parents first; the module's own is number 0
    numbers: dict[Source, int] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)
    inputs: list[tuple[int, Any]] = field(default_factory=list)  # (number of the holding, the first one's GraphInput)
    program: Any = None
    makers: list[tuple[Any, int, Any, Source | None]] = field(default_factory=list)  # how each source is made
    lowered: Any = None  # what the program was made from, for whoever asks which fact failed
    stretch: Any = None
    inside: set[Source] = field(default_factory=set)  # every known source that starts at the module

    # ------------------------------------------------------------------ sources

    def leads_through(self, source: Source) -> bool:
        """Whether a source starts at the module."""
        return source in self.inside

    def number(self, source: Source) -> int:
        """The number of a source that leads through the module."""
        known = self.numbers.get(source)
        if known is None:
            for parent in parents(source):
                if self.leads_through(parent):
                    self.number(parent)
            known = self.numbers[source] = len(self.sources)
            self.sources.append(source)
        return known

    def instantiate(self, source: Source) -> list[Source]:
        """Every numbered source, with another module's in the place of the first one's."""
        made = [source]
        for each in self.sources[len(self.makers) + 1:]:
            self.makers.append(self._maker(each))
        for cls, base, detail, model in self.makers:
            if model is not None:
                made.append(with_base(model, made[base]) if type(model) is not CallOf else CallOf(
                    model.fn, tuple(made[self.numbers[a]] if a in self.numbers else a for a in model.args)))
            else:
                made.append(cls(made[base], detail) if detail is not _NOTHING else cls(made[base]))
        return made

    def _maker(self, source: Any) -> tuple[Any, int, Any, Source | None]:
        """(class, number of the base, detail, None); for steps that are made otherwise, the step itself is last."""
        cls = type(source)
        if cls is CallOf:
            return (cls, -1, None, source)
        base = self.numbers[source.base]
        if cls is Key:
            return (cls, base, source.key, None)
        if cls is DictOf:
            return (cls, base, _NOTHING, None)
        return (cls, base, source.index, None) if cls is Index else (cls, base, None, source)


    def relations(self, sources: list[Source]) -> set[tuple[Source, Kind, Source]]:
        """How the objects of a module are related to each other, and to those of others."""
        return {(fact.guard.source if fact.source is None else sources[fact.source], fact.guard.kind,
                 fact.guard.value if fact.other is None else sources[fact.other])
                for fact in self.facts if fact.guard.kind in RELATIONS}


def build(vm: Any, segment: Any, changed: set[int], index: FactIndex) -> Template:
    """The template of a finished segment; `changed`: the records of objects that the program has changed."""
    template = Template(segment, segment.source)
    index.update()
    found = index.under(segment.source)
    template.inside.update(found)
    template.number(segment.source)
    collect_holdings(vm, template, changed, index, found)
    collect_facts(template, index, found)
    collect_inputs(vm, template)
    template.stretch = Stretch(vm.recorder.graph, segment.nodes())
    template.program = guard_program(vm, template)
    return template


def collect_holdings(vm: Any, template: Template, changed: set[int], index: FactIndex, found: list[Source]) -> None:
    last = template.segment.last_tracker
    trackers = sorted((item for source in found for item in index.trackers.get(source, ()) if item[0] < last),
                      key=_arrival)
    for _, tracker in trackers:
        if tracker.part_of is None:
            if tracker.shape in _UNSURE or id(tracker) in changed or id(tracker.standin) in template.segment.objects:
                raise Unlike(f"it reads a {type(tracker.original).__name__}")
            template.holdings.append(Holding(template.number(tracker.source), tracker, tracker.original))
    for source in found:
        for original in vm.heap.replayed_at.get(source, ()):
            if id(original) in vm.heap.replayed:
                template.holdings.append(Holding(template.number(source), None, original))
        for key in index.functions.get(source, ()) if type(source) is not DictOf else ():  # its owner is held
            if key not in index.kept:
                raise Unlike("it reads a value that stands for itself")
            template.holdings.append(Holding(template.number(source), None, index.kept[key]))


def collect_facts(template: Template, index: FactIndex, found: list[Source]) -> None:
    last = template.segment.last_guard
    for holding in template.holdings:
        if index.naming.get(id(holding.original), last) < last:
            raise Unlike("a fact names an object of the module")
    guards = {number: guard for source in found for number, guard in index.guards.get(source, ()) if number < last}
    for number in sorted(guards):
        guard = guards[number]
        if guard.kind is Kind.SHAPE or guard.kind is Kind.VALUES:
            raise Unlike("it relies on numbers of tensors")
        concerned = template.leads_through(guard.source)
        related = guard.kind in RELATIONS and template.leads_through(guard.value)
        template.facts.append(Fact(guard, template.number(guard.source) if concerned else None,
                                   template.number(guard.value) if related else None))


def _arrival(item: tuple[int, Any]) -> int:
    return item[0]


def collect_inputs(vm: Any, template: Template) -> None:
    places = {id(holding.tracker): number for number, holding in enumerate(template.holdings)}
    for each in vm.recorder.inputs[template.segment.first_input:template.segment.last_input]:
        tracker = vm.heap.by_standin.get(id(each.fake))
        if each.boxed or each.tensor is None or tracker is None or tracker.shape is not Shape.TENSOR \
                or type(each.fake) is not FakeTensor:
            raise Unlike("it makes an input of its own")
        if id(tracker) in places:
            template.inputs.append((places[id(tracker)], each))
        elif template.leads_through(each.source):
            raise Unlike("an input that has no record")
    for holding in template.holdings:
        if holding.tracker is not None and holding.tracker.shape is Shape.TENSOR and holding.original.__dict__:
            raise Unlike("a tensor with attributes of its own")


def guard_program(vm: Any, template: Template) -> Any:
    """The facts as a program on the module; `values` answers the objects that it holds."""
    moved = template.instantiate(SELF)
    outside = {tracker.source: tracker for tracker in vm.heap.trackers}
    guards = GuardSet()
    for fact in template.facts:
        guard = fact.guard
        value = guard.value
        if guard.kind in RELATIONS:
            value = fixed(guard.value, outside) if fact.other is None else moved[fact.other]
        source = fixed(guard.source, outside) if fact.source is None else moved[fact.source]
        guards.add(Guard(source, guard.kind, value, guard.where))
    wanted = [moved[holding.place] for holding in template.holdings]
    lowered = template.lowered = lower(list(guards), wanted)
    return _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, 1, 0)


def fixed(source: Source, outside: dict[Source, Any]) -> Source:
    """A source that does not lead through the module, as the very object it names now."""
    tracker = outside.get(source)
    if tracker is not None:
        return Pinned(tracker.original)
    if type(root_of(source)) is not Pinned:
        raise Unlike("it is related to something that has no record")
    return source


_UNSURE = MOVING | {Shape.SCOPE}
