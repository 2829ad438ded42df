"""What a call of a module did, in terms of that module.   a recorded segment  ->  a template for modules like it

In: the stretch of the trace between the entry and the return of a module's call.  Out: the facts it relied on, as a
guard program whose one argument is the module; the graph inputs it has read; its nodes; its value.  By the law that
every outside fact a trace uses is guarded, a module that passes this program is traced alike, its own parameters in the
place of the first one's.  What cannot be said in these terms raises `Unlike`: the module is then traced as ever.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator import _core
from stator.graph.copying import Stretch
from stator.guards.guard import Guard, Kind, is_constant
from stator.guards.guard_set import GuardSet
from stator.guards.lower import lower
from stator.heap.tracker import Shape
from stator.source import CallOf, Local, Pinned, Source, parents, root_of, with_base

SELF = Local("self", 0)
_RELATIONS = frozenset({Kind.ALIAS, Kind.NOT_ALIAS})


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
    lowered: Any = None  # what the program was made from, for whoever asks which fact failed
    stretch: Any = None
    _leads: dict[Source, bool] = field(default_factory=dict)

    # ------------------------------------------------------------------ sources

    def leads_through(self, source: Source) -> bool:
        """Whether a source starts at the module."""
        found = self._leads.get(source)
        if found is None:
            found = source == self.source or any(map(self.leads_through, parents(source)))
            self._leads[source] = found
        return found

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
        numbers = self.numbers
        for each in self.sources[1:]:
            if type(each) is CallOf:
                made.append(CallOf(each.fn, tuple(made[numbers[a]] if a in numbers else a for a in each.args)))
            else:
                made.append(with_base(each, made[numbers[each.base]]))  # type: ignore[index]
        return made


def build(vm: Any, segment: Any, changed: set[int]) -> Template:
    """The template of a finished segment; `changed`: the records of objects that the program has changed."""
    template = Template(segment, segment.source)
    template.number(segment.source)
    collect_holdings(vm, template, changed)
    collect_facts(vm, template)
    collect_inputs(vm, template)
    template.stretch = Stretch(vm.recorder.graph, segment.nodes())
    template.program = guard_program(vm, template)
    return template


def collect_holdings(vm: Any, template: Template, changed: set[int]) -> None:
    heap = vm.heap
    for tracker in heap.trackers[:template.segment.last_tracker]:
        if tracker.part_of is None and template.leads_through(tracker.source):
            if tracker.shape in _UNSURE or id(tracker) in changed:
                raise Unlike(f"it reads a {type(tracker.original).__name__}")
            template.holdings.append(Holding(template.number(tracker.source), tracker, tracker.original))
    for original, source in heap.replayed.values():
        if template.leads_through(source):
            template.holdings.append(Holding(template.number(source), None, original))
    by_id = {id(each): each for each in heap.kept}
    for key, source in heap.sources.items():
        if template.leads_through(source):
            if key not in by_id:
                raise Unlike("it reads a value that stands for itself")
            template.holdings.append(Holding(template.number(source), None, by_id[key]))


def collect_facts(vm: Any, template: Template) -> None:
    originals = {id(holding.original) for holding in template.holdings}
    for guard in itertools.islice(vm.heap.guards.arrived(), template.segment.last_guard):
        relation = guard.kind in _RELATIONS
        concerned = template.leads_through(guard.source)
        related = relation and template.leads_through(guard.value)
        if not relation and guard.kind is not Kind.TENSOR and holds(guard.value, originals):
            raise Unlike(f"a fact names the module itself: {guard.text()}")
        if guard.kind is Kind.SHAPE or guard.kind is Kind.VALUES:
            if concerned or guard.kind is Kind.SHAPE:
                raise Unlike("it relies on numbers of tensors")
            continue
        if concerned or related:
            template.facts.append(Fact(guard, template.number(guard.source) if concerned else None,
                                       template.number(guard.value) if related else None))


def holds(value: Any, originals: set[int]) -> bool:
    if id(value) in originals:
        return not is_constant(value)
    return type(value) in (tuple, frozenset) and any(holds(item, originals) for item in value)


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
        if guard.kind in _RELATIONS:
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


_UNSURE = frozenset({Shape.UPCOMING, Shape.ITERATOR, Shape.ARRAY, Shape.BUFFER, Shape.SCOPE})
