"""Write effects back.   self.n += 1; xs.append(y)  ->  vars(self)['n'] = 4; xs.append(y)

In: the trackers, each with the boxes it had when it was adopted; flags and hooks of outside tensors.  Out: statements
of the residual program, whose expressions read parameters and fresh objects only.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass
from types import CellType
from typing import Any

import numpy
import torch

from stator import _core, _hook
from stator.breaks import Break, Strategy
from stator.emit.effects.mode_stack import write_mode_stack
from stator.emit.effects.replayed_output import write_effect
from stator.emit.rebuild.decimal_contexts import write_decimal_contexts
from stator.emit.rebuild.returned_iterators import write_iterator, write_standing
from stator.emit.rebuild.returned_objects import write_context_sets
from stator.emit.rebuild.values import Rebuilder, set_attribute
from stator.guards.guard import MISSING
from stator.heap.adopt.outside_sets import guard_layout, require_same_hashes
from stator.heap.heap import Heap
from stator.heap.iterators.outside_iterators import WALKERS, advanced, exhausted
from stator.heap.iterators.peekable_iterators import is_exhausted, taken
from stator.heap.outside_changes import CLASSED, is_changed, refuse_watched_deaths
from stator.heap.pure_readers import bytes_of, default_factory_of, entries_of_class
from stator.heap.raw_access import instance_dict, namespace_of, raw_members, slot_members, slot_values
from stator.heap.shared_state import guard_two_names
from stator.heap.tracker import ShadowKind, VariableTracker, is_current, untouched
from stator.host.value_kinds import is_a
from stator.interp.mechanisms import ClassState, ContextState, FunctionState, ModeState, RandomState
from stator.interp.objects.function_attributes import guard_distinct
from stator.interp.tensors.leaf_flags import settle_flags
from stator.library.asynchronous.event_loop import refuse_unfinished
from stator.library.process.made_files import refuse_open_files
from stator.library.python.finalizers import refuse_instances
from stator.library.python.lifetimes import refuse_collections
from stator.library.python.random_states import set_state, state_of
from stator.library.python.weak_references import refuse_untold_deaths
from stator.source import CallOf


def write_effects(build: Rebuilder) -> int:
    """Emit every write-back; answers how many there are."""
    statements: list[str] = []
    refuse_watched_deaths(build.heap)
    refuse_untold_deaths(build.vm)
    refuse_unfinished(build.vm)
    refuse_instances(build.vm)
    refuse_open_files(build.vm)
    refuse_collections(build.vm)
    write_context_sets(build)
    for state in build.vm.mechanisms:
        writer = _WRITERS.get(type(state))
        if writer is not None:
            writer(build, state, statements)
    effects = build.vm.effects
    if any(is_changed(build.heap, each) for each in effects.deciding.values()):
        raise Break("SB015", "output before changes that it would show", turn_off=Strategy.LATE_OUTPUT)
    replayed = [write_effect(build, effect) for effect in effects.noted]
    statements = replayed[:effects.early] + statements + replayed[effects.early:]
    for statement in statements:
        build.writer.line(statement)
    return len(statements)


def _write_heap(build: Rebuilder, heap: Heap, statements: list[str]) -> None:
    vm = build.vm
    tensors = bool(vm.tensors.grads or vm.tensors.data or vm.tensors.attributes)  # whether anything was set on one
    for tracker in _writing_order(heap.trackers):
        if tracker.shape is ShadowKind.TENSOR and not tensors and tracker.initial_slots is None:
            tracker.mutated = False
            continue
        before = len(statements)
        _diff(build, tracker, statements)
        tracker.mutated = len(statements) > before
        if tracker.mutated and id(tracker) not in heap.changes.written and tracker.shape not in _UNNOTED \
                and (vm.policy.strict or vm.replay is not None and vm.replay.played):
            raise AssertionError(f"a write to {tracker.source.text()} was not noted")  # what was replayed may be stale
    guard_two_names(heap, vm.classes.overlays, vm.recorder.layouts.touched())
    heap.faces.guard_overlaps()
    for scope in list(heap.scopes.values()):
        for name, value in scope.overlay.items():
            namespace = build.writer.constant(scope.namespace, "globals")
            if value is MISSING or name in scope.reborn:
                statements.append(f"{namespace}.pop({name!r}, None)")  # it may have come and gone
            if value is not MISSING:
                statements.append(f"{namespace}[{name!r}] = {build.value(value)}")


def _write_classes(build: Rebuilder, classes: ClassState, statements: list[str]) -> None:
    for cls, overlay in classes.overlays.items():
        for name, value in overlay.items():
            holder = build.writer.constant(cls)
            if value is MISSING or (cls, name) in classes.reborn:
                statements.append(f"{build.writer.constant(forget_attribute)}({holder}, {name!r})")
            if value is not MISSING:
                statements.append(f"setattr({holder}, {name!r}, {build.value(value)})")


def _write_functions(build: Rebuilder, functions: FunctionState, statements: list[str]) -> None:
    guard_distinct(build.heap, functions.members)
    for fn, members in functions.members.items():
        holder = build.outside(build.heap.source_of(fn))
        statements.extend(f"{holder}.{name} = {build.value(value)}" for name, value in members.items())


def _write_streams(build: Rebuilder, streams: RandomState, statements: list[str]) -> None:
    for stream, known in streams.seeded.values():
        state = build.writer.constant(state_of(known), "stream_state")
        statements.append(f"{build.writer.constant(set_state)}({build.outside(build.heap.source_of(stream))}, {state})")


def _write_decimal_flags(build: Rebuilder, contexts: ContextState, statements: list[str]) -> None:
    if contexts.decimal is not None:
        write_decimal_contexts(build, contexts.decimal, statements)


_WRITERS: dict[type, Callable[[Rebuilder, Any, list[str]], None]] = {
    Heap: _write_heap, ClassState: _write_classes, FunctionState: _write_functions,
    RandomState: _write_streams, ContextState: _write_decimal_flags,
    ModeState: write_mode_stack,
}


def forget_attribute(cls: type, name: str) -> None:
    """Delete an attribute of the class; one that came and went was never there."""
    if name in cls.__dict__:
        delattr(cls, name)


def _writing_order(trackers: list[VariableTracker]) -> list[VariableTracker]:
    """As they were met.  Iterators that are advanced come first, while what they walk is as it was; those that are set
    to a position come last, an iterator before those it draws from."""
    kinds = {ShadowKind.PEEKABLE: 0, ShadowKind.ITERATOR: 2}
    first, others, last = ([each for each in trackers if kind == (
        0 if type(each.standin) in WALKERS else kinds.get(each.shape, 1))] for kind in range(3))
    return first + others + last[::-1]


def _diff(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    shape = tracker.shape
    if tracker.part_of is not None or type(tracker.source) is CallOf and tracker.source.fn.obj is entries_of_class:
        return None
    if shape in _WRITTEN_WHOLE:
        return _WRITTEN_WHOLE[shape](build, tracker, out)
    if shape in CLASSED and type(tracker.standin) is not type(tracker.original):
        change = build.writer.constant(_set_class, "set_class")
        out.append(f"{change}({build.outside(tracker.source)}, {build.value(type(tracker.standin))})")
    if shape in _CONTENTS:
        _CONTENTS[shape](build, tracker, out)
    if tracker.initial_dict is not None and tracker.dict_owner is None and shape is not ShadowKind.TENSOR:
        _diff_attributes(build, tracker, out)
    if tracker.initial_slots is not None:
        _diff_slots(build, tracker, out)


def _diff_tensor(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    """Attributes that the program set on a tensor from outside; the graph writes its contents."""
    number, tensors = id(tracker.standin), build.vm.tensors
    if number in tensors.grads:
        out.append(f"{build.outside(tracker.source)}.grad = {build.value(tensors.grads[number][1])}")
    if number in tensors.data:
        note, place = tensors.data[number], build.outside(tracker.source)
        out.append(f"{place}.data = {build.value(note.value)}")
        count = build.writer.constant(torch.autograd.graph.increment_version, "count_write")
        out += [f"{count}({place})"] * note.later_writes()
    for name, value in tensors.attributes.get(number, {}).items():
        if tracker.initial_dict is None or name not in tracker.initial_dict \
                or not is_current(tracker.initial_dict[name], value):
            setter = build.writer.constant(set_attribute, "set_attribute")
            out.append(f"{setter}({build.outside(tracker.source)}, {name!r}, {build.value(value)})")


def _diff_generator(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    """A generator from outside whose body this segment ran: it stands where the body does."""
    body = dict.get(build.vm.generators, id(tracker.standin))
    if body is not None and body.adopted is not None and (body.entered or body.done and not body.over):
        write_standing(build, body, build.outside(tracker.source), out)


def _diff_peekable(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    """The program took items from the user's iterator: take as many."""
    if is_exhausted(tracker):
        out.append(f"{build.writer.constant(exhausted)}({build.outside(tracker.source)})")
    elif count := taken(tracker):
        name = build.outside(tracker.source)
        out.append(f"{build.writer.constant(next)}({name}, None)" if count == 1
                   else f"{build.writer.constant(advanced)}({name}, {count})")


def _diff_list(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    initial = tracker.initial
    now = list(raw_members(tracker.standin))
    cls = list if is_a(tracker.standin, list) else collections.deque
    if all(map(is_current, initial, now)) and len(now) >= len(initial):
        if len(now) > len(initial):
            name, base = build.outside(tracker.source), build.writer.constant(cls)
            added = [build.value(value) for value in now[len(initial):]]
            out.append(f"{base}.append({name}, {added[0]})" if len(added) == 1
                       else f"{base}.extend({name}, [{', '.join(added)}])")
        return
    name = build.outside(tracker.source)
    parts = [build.value(value) for value in now]
    base = build.writer.constant(cls)
    if cls is list:
        out.append(f"{base}.__setitem__({name}, slice(None), [{', '.join(parts)}])")
    elif len(now) == len(initial):  # iterators of the deque may go on
        out.extend(f"{base}.__setitem__({name}, {at}, {part})" for at, part in enumerate(parts)
                   if not is_current(initial[at], now[at]))
    else:
        out.append(f"{base}.clear({name})")
        out.append(f"{base}.extend({name}, [{', '.join(parts)}])")


def _diff_dict(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    """Keys are distinguished by identity: comparing them would run the program's `__eq__` and `__hash__`."""
    if untouched(tracker.initial, tracker.standin):
        return
    base_type: Any = collections.OrderedDict if is_a(tracker.standin, collections.OrderedDict) else dict
    initial = {id(key): (key, box) for key, box in tracker.initial.items()}
    values = {id(key): item for key, item in dict.items(tracker.standin)}
    order = list(base_type.__iter__(tracker.standin))
    name, base = tracker.source, build.writer.constant(base_type)
    _diff_factory(build, tracker, out)
    kept = [key for key in tracker.initial if id(key) in values]
    if any(key is not known for key, known in zip(order, kept, strict=False)):  # removed and put back, or moved
        build.heap.expose_keys(tracker)
        items = [f"({build.value(key)}, {build.value(values[id(key)])})" for key in order]
        out.append(f"{base}.clear({build.outside(name)})")
        out.append(f"{base}.update({build.outside(name)}, [{', '.join(items)}])")
        return
    for number, (key, _) in initial.items():
        if number not in values:
            out.append(f"{base}.__delitem__({build.outside(name)}, {build.value(key)})")
    for key in order:
        item = values[id(key)]
        if id(key) not in initial or not is_current(initial[id(key)][1], item):
            out.append(f"{base}.__setitem__({build.outside(name)}, {build.value(key)}, {build.value(item)})")


def _diff_factory(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    if not is_a(tracker.standin, collections.defaultdict):
        return
    now, before = (default_factory_of(value) for value in (tracker.standin, tracker.original))
    if build.heap.original_of(now) is not before:
        out.append(f"{build.outside(tracker.source)}.default_factory = {build.value(now)}")


def _diff_set(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    """Repeat operations of the program that are few; or lay out the final table, under a guard on the first one."""
    table = tracker.table
    if not table.is_changed(tracker.standin):
        return
    name = tracker.source
    if table.steps is not None and (not table.exact or len(table.steps) <= len(tracker.standin) + 8):
        for method, *given in table.steps:
            item = "".join(f", {build.value(each)}" for each in given)
            out.append(f"set.{'discard' if method == 'remove' else method}({build.outside(name)}{item})")
        return
    require_same_hashes(build.heap, raw_members(tracker.standin))
    guard_layout(build.heap, name, table.layout)
    parts = ", ".join(map(build.value, raw_members(tracker.standin)))
    layout = build.writer.constant(_core.set_layout(tracker.standin), "layout")
    out.append(f"set.clear({build.outside(name)})")
    out.append(f"{build.writer.constant(_core.fill_set, 'fill_set')}({build.outside(name)}, {layout}, [{parts}])")


def _diff_buffer(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    contents = bytes_of(tracker.standin)
    if contents != tracker.initial:
        if len(contents) != len(tracker.initial):  # what somebody has a view of does not change its size
            build.heap.guard_call(_hook.is_exported, False, tracker.source)
        out.append(f"{build.writer.constant(set_bytes, 'set_bytes')}({build.outside(tracker.source)}, {contents!r})")


def set_bytes(buffer: Any, contents: bytes) -> None:
    buffer[:] = contents if type(buffer) is bytearray else type(buffer)(buffer.typecode, contents)


def _diff_cell(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    cell, before = tracker.standin, tracker.initial
    if cell == CellType():
        out += [f"del {build.outside(tracker.source)}.cell_contents"] if before is not None else []
    elif before is None or not is_current(before, cell.cell_contents):
        out.append(f"{build.outside(tracker.source)}.cell_contents = {build.value(cell.cell_contents)}")


def put_back(before: list[Any], now: list[Any]) -> set[Any]:
    """The names that were removed and set again: they went to the end, behind names that stayed."""
    places = {name: i for i, name in enumerate(before)}
    last, moved = -1, set()
    for name in now:
        if places.get(name, last) < last:
            moved.add(name)
        else:
            last = places.get(name, last)
    return moved


def _diff_attributes(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    initial = tracker.initial_dict
    now = instance_dict(tracker.standin)
    assert initial is not None and now is not None
    if untouched(initial, now):
        return
    own = build.writer.constant(namespace_of, "vars")
    moved = put_back(list(initial), list(now))
    for name in initial:
        if name not in now or name in moved:
            out.append(f"del {own}({build.outside(tracker.source)})[{name!r}]")
    for name, value in now.items():
        if name not in initial or name in moved or not is_current(initial[name], value):
            out.append(f"{own}({build.outside(tracker.source)})[{name!r}] = {build.value(value)}")


def _diff_slots(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    before, cls = tracker.initial_slots, type(tracker.original)
    assert before is not None
    now = slot_values(tracker.standin, cls)
    for member in slot_members(cls):  # type: ignore[arg-type]  # mypy: type[Any] is not Hashable
        slot = build.writer.constant(member, f"slot_{member.__name__}")
        if member in before and member not in now:
            out.append(f"{slot}.__delete__({build.outside(tracker.source)})")
        elif member in now and (member not in before or not is_current(before[member], now[member])):
            out.append(f"{slot}.__set__({build.outside(tracker.source)}, {build.value(now[member])})")


def _diff_array(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    """Copy the contents of a stand-in back, if the program changed them."""
    if not build.heap.faces.has_changed(tracker):
        return
    now = tracker.standin.copy(order="C")
    out.append(f"{build.writer.constant(numpy.copyto, 'copyto')}({build.outside(tracker.source)}, "
               f"{build.writer.constant(now, 'contents')})")


_UNNOTED = (ShadowKind.TENSOR, ShadowKind.OPAQUE)
_set_class = object.__dict__["__class__"].__set__  # type: ignore[attr-defined]
_WRITTEN_WHOLE = {ShadowKind.OPAQUE: _diff_generator, ShadowKind.ITERATOR: write_iterator,
                  ShadowKind.BUFFER: _diff_buffer, ShadowKind.ARRAY: _diff_array}
_CONTENTS = {ShadowKind.PEEKABLE: _diff_peekable, ShadowKind.LIST: _diff_list, ShadowKind.DICT: _diff_dict,
             ShadowKind.SET: _diff_set, ShadowKind.CELL: _diff_cell, ShadowKind.TENSOR: _diff_tensor}


@dataclass
class FlagLines:
    """Statements before the graph, those that take them back where it raises, and statements after it."""

    first: list[str]
    undo: list[str]
    last: list[str]


def write_flags(build: Rebuilder) -> FlagLines:
    lines = FlagLines([], [], [])
    for flag in settle_flags(build.vm):
        leaf = build.outside(build.heap.by_standin[id(flag.leaf)].source)
        put = f"{build.method('requires_grad_')}({leaf}, {{}})"
        if flag.entry is not flag.before:
            lines.first.append(put.format(flag.entry))
            lines.undo.append(put.format(flag.before))
        if flag.final is not flag.entry:
            lines.last.append(put.format(flag.final))
    return lines


def write_hooks(build: Rebuilder) -> None:
    for handle, hook in list(build.vm.autograd.hooks.values()):
        if hook is None or hook.node is not None:
            continue
        with torch._C.DisableTorchFunction():
            if hook.tensor._version != hook.version:
                raise Break("SB016", "a hook on a tensor that is changed in place afterwards")
        tensor, function = build.value(hook.tensor), build.value(hook.function)
        build.variable(handle, "hook", f"{build.method(hook.method)}({tensor}, {function})")
