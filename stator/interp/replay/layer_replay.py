"""Repeated structure.   the trace of layer 0  ->  the trace of layer 1, without interpreting it

The first call of a class with arguments of one description is interpreted, and remembered as a segment: nodes, inputs
and guards.  A later module of that class for which its facts hold (`template`) gets the same on its own parameters.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator import events
from stator.graph.fx.graph_instances import may_view
from stator.graph.fx.nodes import legal_name, name_parts
from stator.graph.metadata.input_layouts import add_alike
from stator.guards.guard import is_constant, value_key
from stator.guards.guard_set import PatternInstance
from stator.heap.pure_readers import held_dict
from stator.heap.raw_access import IDENTITY_TYPES, instance_dict
from stator.heap.tracker import Box, ShadowKind, VariableTracker
from stator.host.mechanism import all_allow_replay, replay_keys
from stator.host.value_kinds import is_a
from stator.interp.frame import Continuation
from stator.interp.graph_errors import note_caught
from stator.interp.mutation_check import changed_state
from stator.interp.replay.replay_template import FactIndex, Template, Unlike, build
from stator.interp.services import VM
from stator.source import Pinned, Source

SMALLEST = 4  # operations of a segment: below that, interpreting it costs less than comparing
KEPT = 4  # segments remembered of one class and description: blocks of one class may differ in their parameters
_NOTHING = object()


@dataclass(slots=True)
class Extent:
    """How far graph and heap had got."""

    node: Any = None  # the last one
    inputs: int = 0
    trackers: int = 0
    guards: int = 0


@dataclass
class Segment:
    """A call of a module, from its entry to its return."""

    source: Source  # of the module
    cls: type
    above: str  # the text of the stack at the call
    tensors: list[Any]  # of the arguments, as the description numbers them
    objects: set[int]  # outside objects among the arguments, by the ids of their stand-ins
    held: Any  # the arguments: their ids are part of the description
    begin: Extent
    steps: int
    jumps: int
    mark: Any  # what must not change while it runs
    region: Any = ()  # the named call around it
    end: Extent | None = None
    value: Any = None
    places: dict[int, Any] = field(default_factory=dict)  # of its results, by id: what made them when it returned
    template: Any = None  # a Template; False where there cannot be one

    def nodes(self) -> Iterator[fx.Node]:
        assert self.end is not None
        node = self.begin.node
        while node is not self.end.node:
            node = node.next
            if node.op != "placeholder":
                yield node


class Replay:
    """The segments of one trace."""

    def __init__(self, vm: VM) -> None:
        self.vm = vm
        self.segments: dict[Any, list[Segment]] = {}
        self.index = FactIndex(vm.heap)
        self.state: Any = None  # of what the program has changed, as far as is known; None: unknown
        self.checked = -1  # how many writes there had been then
        self.played = 0
        self.small: set[type] = set()  # classes whose calls are too short to be played, where they hold no modules

    def close(self) -> None:
        """The trace is over: who asks what keeps the user's objects alive does not find it here."""
        self.segments.clear()
        self.index = FactIndex(self.vm.heap)
        self.state = None

    def call(self, method: types.FunctionType, module: object, args: tuple[Any, ...],
             kwargs: dict[str, Any] | None, cont: Continuation | None) -> None:
        """Call a module: play what a module like it did, or interpret it, and remember what it does."""
        vm = self.vm
        tracker = vm.heap.by_standin.get(id(module))
        key = None
        tensors: list[Any] = []
        objects: set[int] = set()
        if tracker is not None and type(tracker.source) is not Pinned and not self.is_small(tracker) and self.is_calm():
            try:
                key = (id(method), type(module), vm.depth == 1, vm.recorder.log.reshaped, self.state.key,
                       vm.torch_state.replay_key(), *[self.describe(value, tensors, objects) for value in args],
                       *[(name, self.describe(value, tensors, objects)) for name, value in (kwargs or {}).items()])
            except Unlike:
                key = None
        if key is None or tracker is None:
            vm.module_calls.enter(vm, method, module, args, kwargs, cont)
            return None
        known = self.segments.setdefault(key, [])
        for segment in reversed(known):
            value = self.attempt(segment, tracker, tensors)
            if value is not _NOTHING:
                return vm.give(value, cont)
        segment = self.begin(tracker, tensors, objects, (args, kwargs, self.state))
        frame = vm.module_calls.enter(vm, method, module, args, kwargs, cont)
        if frame is not None:
            frame.segment = segment
            segment.held = (segment.held, known)

    def begin(self, tracker: VariableTracker, tensors: list[Any], objects: set[int], held: object) -> Segment:
        vm = self.vm
        recorder = vm.recorder
        return Segment(tracker.source, type(tracker.original), vm.stack_trace(), tensors, objects, held,
                       Extent(recorder.graph._root._prev, len(recorder.inputs)), vm.steps, vm.progress.jumps,
                       self.mark(), () if recorder.region.named is None else recorder.region.named.around(vm, vm.frame))

    def is_small(self, tracker: VariableTracker) -> bool:
        """Whether another module of the class had less to do than is worth comparing, and this one has no parts."""
        return type(tracker.original) in self.small \
            and not (instance_dict(tracker.original) or {}).get("_modules", True)

    def end(self, segment: Segment, value: object) -> None:
        """The frame of a segment returns: remember it, unless it did more than can be played again."""
        vm = self.vm
        held, known = segment.held
        segment.held = held
        if not self.is_calm() or segment.mark != self.mark() \
                or not plain_value(vm, value, segment.tensors, given_tuples(held)):
            return
        recorder = vm.recorder
        segment.end = Extent(recorder.graph._root._prev, len(recorder.inputs), len(vm.heap.trackers),
                             len(vm.heap.guards))
        if sum(1 for _ in itertools.islice(segment.nodes(), SMALLEST)) < SMALLEST:
            self.small.add(segment.cls)
            return
        segment.steps, segment.jumps = vm.steps - segment.steps, vm.progress.jumps - segment.jumps
        segment.value = value
        # The node of a part of a result (`topk(x)[1]`) is made where it is first used, which may be after the segment.
        segment.places = {id(each): recorder.nodes.get(id(each)) for each in results_of(value)}
        known.append(segment)
        del known[:-KEPT]

    def is_calm(self) -> bool:
        """Whether it is known what the program has changed by now, and nothing odd is going on."""
        vm = self.vm
        recorder, heap, symbols = vm.recorder, vm.heap, vm.recorder.symbols
        if not recorder.propagation.enabled or recorder.scope.enclosing is not None or recorder.region.marks \
                or recorder.uncertain.storages or symbols.origins or symbols.numbers or symbols.definitions \
                or events.lines_wanted() or vm.exc_state.topmost() is not None:
            return False
        if not all_allow_replay(vm.mechanisms):
            return False
        if self.checked != heap.changes.writes:
            self.checked, self.state = heap.changes.writes, changed_state(vm)
        return self.state is not None

    def mark(self) -> tuple[Any, ...]:
        """Counts and facts that a segment must leave alone."""
        vm = self.vm
        recorder = vm.recorder
        return (recorder.log.changes, recorder.log.in_place, len(recorder.scope.inner_graphs), recorder.known.asked,
                len(recorder.symbols.shape_env.guards), vm.depth, replay_keys(vm.mechanisms),
                None if self.state is None else self.state.key)

    def describe(self, value: Any, tensors: list[Any], objects: set[int]) -> Any:
        """Key of one argument; the tensors of the trace are numbered."""
        cls = type(value)
        heap = self.vm.heap
        if cls is Box:
            return ("place", id(value))
        if id(value) in heap.by_standin:
            objects.add(id(value))
            return ("outside", id(value))
        if cls is FakeTensor:
            number = next((i for i, known in enumerate(tensors) if known is value), -1)
            if number < 0:
                tensors.append(value)
                return self.tensor_key(value)
            return number
        if cls is tuple:
            return (tuple, *[self.describe(item, tensors, objects) for item in value])
        if is_constant(value):
            return value_key(value)
        if cls in IDENTITY_TYPES or is_a(value, type) or cls is types.FunctionType and id(value) not in self.vm.fresh:
            return ("object", id(value))
        raise Unlike

    def tensor_key(self, fake: FakeTensor) -> tuple[Any, ...]:
        recorder = self.vm.recorder
        if type(recorder.nodes.get(id(fake))) is not fx.Node:
            raise Unlike  # a part of a result, whose node is made when it is first used
        found = recorder.propagation.tensor_key(fake)
        if found[0] is None or found[-1] or getattr(fake, "_is_param", False):
            raise Unlike
        return found

    def attempt(self, segment: Segment, tracker: VariableTracker, tensors: list[Any]) -> Any:
        """The value of the call, if the segment can be played for this module; nothing was changed if not."""
        vm = self.vm
        if vm.steps < vm.stop_step <= vm.steps + segment.steps or segment.template is False:
            return _NOTHING
        template: Template | None = segment.template
        if template is None:
            try:
                template = segment.template = build(vm, segment, self.state.reached, self.index)
            except Unlike:
                segment.template = False
                return _NOTHING
        images = template.program.values((tracker.original,))
        if images is None:
            return _NOTHING
        instance = PatternInstance(template.pattern, tracker.source)
        if not self.is_like(template, images, instance):
            return _NOTHING
        return self.play(template, images, instance, tensors)

    def is_like(self, template: Template, images: tuple[Any, ...], instance: PatternInstance) -> bool:
        """Whether the objects that the module holds relate to each other and to others as the first's do."""
        heap, segment = self.vm.heap, template.segment
        ids = {id(image): number for number, image in enumerate(images)}
        if len(ids) != len(images):
            return False
        relations = None
        for key in heap.by_original.keys() & ids.keys():
            met, source = heap.by_original[key], instance.source(template.holdings[ids[key]].place)
            if relations is None:
                relations = template.related(instance)
            if met.source != source or id(met) in self.state.reached or id(met.standin) in segment.objects \
                    or not self.index.related(source) <= relations:
                return False
        for number, is_input in template.tensors:
            if id(images[number]) not in heap.by_original and (not is_input or images[number].__dict__):
                return False
        for key in heap.replayed.objects.keys() & ids.keys():
            _, other, place = heap.replayed.objects[key]
            if other.source(place) != instance.source(template.holdings[ids[key]].place):
                return False
        return heap.dicts.namespaces.keys().isdisjoint(ids) and all(
            heap.sources[key] == instance.source(template.holdings[ids[key]].place)
            for key in heap.sources.keys() & ids.keys())

    def play(self, template: Template, images: tuple[Any, ...], instance: PatternInstance, tensors: list[Any]) -> Any:
        """Add what the first segment added, in terms of this module."""
        vm, segment = self.vm, template.segment
        heap, recorder = vm.heap, vm.recorder
        self.played += 1
        self.outputs: set[fx.Node] = set()  # nodes that what follows may use
        nodes: dict[fx.Node, fx.Node] = {}
        fakes: dict[int, Any] = {}
        for old, new in zip(segment.tensors, tensors, strict=True):
            nodes[recorder.node_of(old)] = recorder.node_of(new)
            fakes[id(old)] = new
        name = name_parts(instance.root.text() + ".")[:-1]  # what follows begins with an underscore of its own
        for number, first, suffix in template.inputs:
            if id(images[number]) not in heap.by_original:
                self.take_input(first, images[number], instance.source(template.holdings[number].place), name, suffix)
        self.note(template, images, instance)
        for number, _ in template.tensors:
            first_fake = template.holdings[number].tracker.standin
            standin = heap.by_original[id(images[number])].standin
            nodes[recorder.node_of(first_fake)] = recorder.node_of(standin)
            fakes[id(first_fake)] = standin
        above, before = vm.stack_trace(), len(segment.above)
        play = template.stretch.record(recorder.graph, nodes, None if above == segment.above else above, before)
        if caught := vm.caught():
            for copy in play.copies:
                note_caught(copy, caught, False)
        if recorder.region.named is not None:
            recorder.region.named.renumber(vm, play.copies, segment.region)
        recorder.log.plays.append(play)
        recorder.scope.calls += len(template.stretch.steps)
        recorder.propagation.served += 1
        heap.guards.add_instance(instance)
        for each in template.relations:
            heap.guards.add(each.moved_to(instance))
        if vm.depth == 1:
            vm.steps += segment.steps
        vm.progress.jumps += segment.jumps
        value = self.rebuild(segment.value, segment.places, nodes, fakes)
        play.outputs = [each for each in play.copies if each in self.outputs]
        return value

    def take_input(self, first: object, image: object, source: Source, name: str, suffix: str | None) -> None:
        """A parameter or buffer of the module becomes an input of the graph; its guard is among the facts."""
        recorder, heap = self.vm.recorder, self.vm.heap
        fake = recorder.add_input(image, source) if suffix is None else \
            add_alike(recorder, first, image, source, legal_name(name + suffix))
        heap.register(VariableTracker(fake, image, source, ShadowKind.TENSOR))

    def note(self, template: Template, images: tuple[Any, ...], instance: PatternInstance) -> None:
        """The objects were not adopted; when one is, through whatever place, this one is the first it was seen at."""
        heap = self.vm.heap
        replayed, met = heap.replayed.objects, heap.by_original
        seen: list[tuple[Any, int]] = []
        for place, image in zip(template.places, images, strict=True):
            key = id(image)
            if key in met or key in replayed:
                continue
            found = replayed[key] = (image, instance, place)
            seen.append((image, place))
            own = held_dict(image)
            if own is not None:
                heap.replayed.dicts[id(own)] = found
        heap.replayed.plays.append((instance, seen))

    def rebuild(self, value: object, places: dict[int, Any], nodes: dict[fx.Node, fx.Node],
                fakes: dict[int, Any]) -> Any:
        if type(value) is FakeTensor:
            known = fakes.get(id(value))
            if known is None and id(value) not in self.vm.heap.by_standin:
                known = fakes[id(value)] = self.new_fake(value, places[id(value)], nodes)
            return value if known is None else known
        if type(value) is tuple:
            return tuple([self.rebuild(item, places, nodes, fakes) for item in value])
        return value

    def new_fake(self, value: object, node: fx.Node, nodes: dict[fx.Node, fx.Node]) -> Any:
        """A result of the segment, tied to the copy of the node (or of the part of one) that made it."""
        recorder = self.vm.recorder
        fake = recorder.propagation.alike(value)
        if type(node) is tuple:
            place = moved(node, nodes)
            recorder.tie(fake, place)
            while type(place) is tuple:
                place = place[0]
            self.outputs.add(place)
            if may_view(place):
                recorder.propagation.note_view(fake, None)
        elif node in nodes:
            recorder.tie(fake, nodes[node])
            nodes[node].meta["example_value"] = fake
            self.outputs.add(nodes[node])
            if may_view(node):
                recorder.propagation.note_view(fake, None)
        else:
            return value  # of before the segment, and not among its arguments
        return fake


def moved(place: object, nodes: dict[fx.Node, fx.Node]) -> Any:
    """(node, index), or deeper, with the copy of the node."""
    return (moved(place[0], nodes), place[1]) if type(place) is tuple else nodes.get(place, place)


def results_of(value: object) -> Iterator[Any]:
    if type(value) is FakeTensor:
        yield value
    elif type(value) is tuple:
        for item in value:
            yield from results_of(item)


def given_tuples(held: Any) -> set[int]:
    found: set[int] = set()
    todo = [*held[0], *(held[1] or {}).values()]
    while todo:
        value = todo.pop()
        if type(value) is tuple:
            found.add(id(value))
            todo += value
    return found


def plain_value(vm: VM, value: object, tensors: list[Any], given: set[int]) -> bool:
    """Whether the result of a segment can be made again: tensors without a history, constants that are but one."""
    if type(value) is tuple:
        return id(value) not in vm.heap.by_standin and id(value) not in given \
            and all(plain_value(vm, item, tensors, given) for item in value)
    if type(value) is FakeTensor:
        if id(value) in vm.heap.by_standin or any(value is known for known in tensors):
            return True
        found = vm.recorder.propagation.tensor_key(value)
        return found[0] is not None and not found[-1]
    return value is None or type(value) is bool
