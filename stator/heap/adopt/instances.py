"""Adopt instances of user-defined classes.   config  ->  a shell of its class, its dict, slots and container part boxed

In: an object and where it was read.  Out: a stand-in made without running the class's code.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import types
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator import _hook
from stator.breaks import Break
from stator.graph.metadata.input_layouts import acts_as_wrapper
from stator.graph.record.nested_tensors import is_jagged
from stator.graph.record.wrapper_subclasses import flatten, same_flattening
from stator.guards.guard import Kind
from stator.heap.adopt.outside_sets import adopt_members
from stator.heap.pure_readers import plain_value
from stator.heap.raw_access import instance_dict, items_in_order, new_shell, set_instance_dict, slot_members
from stator.heap.services import Heap
from stator.heap.tracker import ShadowKind, VariableTracker, recorded
from stator.source import Attr, CallOf, DictOf, Index, Key, Pinned, Slot, Source

_HAVE_GC = 1 << 14  # Py_TPFLAGS_HAVE_GC: instances have the mark of finalized objects
BOXED_LATER = (collections.OrderedDict, functools.partial)


@recorded
def adopt_instance(heap: Heap, value: Any, source: Source) -> Any:
    cls = type(value)
    shell = new_shell(cls)
    assert shell is not None
    ends = hasattr(cls, "__del__")
    if ends and (type(cls.__del__) is not types.FunctionType or not cls.__flags__ & _HAVE_GC
                 or shell.shape is not ShadowKind.OBJECT):
        raise Break("SB019", f"{cls.__name__} has a finalizer, which would run on its stand-in")
    boxes: Any = None
    if shell.shape is ShadowKind.DICT:
        items_in_order(value)  # breaks where there is no such order, before there is a record
    if shell.shape is ShadowKind.TUPLE:
        boxes = [heap.box(item, Index, source, i) for i, item in enumerate(tuple.__iter__(value))]
        standin = shell.make(cls, boxes)
    elif shell.shape is ShadowKind.VALUE:
        plain = plain_value(value)
        standin = shell.make(cls, plain)
        heap.guard_call(plain_value, plain, source)
    elif shell.base is frozenset:
        standin, *known = adopt_members(heap, value, source, cls)
    else:
        standin = shell.make(cls)
    if ends:
        _hook.mark_finalized(standin)  # only the user's object runs the finalizer
    tracker = heap.register(VariableTracker(standin, value, source, shell.shape, boxes))
    heap.guard_type(tracker)
    if shell.shape is ShadowKind.TUPLE:
        heap.guard(source, Kind.LEN, len(boxes))
    elif shell.shape is ShadowKind.LIST:
        tracker.initial = [heap.box(item, Index, source, i) for i, item in enumerate(shell.base.__iter__(value))]
        shell.base.extend(standin, tracker.initial)
    elif shell.shape is ShadowKind.DICT:
        if shell.base is collections.defaultdict:
            standin.default_factory = heap.default_factory(value, source)
        heap.fill_dict(tracker, value, standin, source)
    elif shell.shape is ShadowKind.SET:
        heap.know_set(tracker, *(known if shell.base is frozenset else adopt_members(heap, value, source, standin)[1:]))
    fill_attributes(heap, tracker)
    return standin


def box_attributes(heap: Heap, value: object) -> None:
    """Box the attributes of an instance on first access: few instances have any."""
    tracker = heap.by_standin.get(id(value))
    if tracker is not None and tracker.initial_dict is None and type(tracker.original) in BOXED_LATER:
        fill_attributes(heap, tracker)


def fill_attributes(heap: Heap, tracker: VariableTracker) -> None:
    value, standin, source = tracker.original, tracker.standin, tracker.source
    namespace = instance_dict(value)
    if namespace is not None:
        owner = heap.dicts.namespaces.setdefault(id(namespace), tracker)
        if heap.replayed.objects:
            heap.adopt_replayed(namespace)
        known = heap.by_original.get(id(namespace))
        if known is tracker:  # `self.__dict__ = self`: its attributes are its items, and written back with those
            heap.guard(DictOf(source), Kind.ALIAS, source)
            set_instance_dict(standin, standin)
            tracker.initial_dict, tracker.dict_owner = tracker.initial, tracker
        elif owner is not tracker:  # two objects with one dict: it is written back once
            heap.guard(DictOf(source), Kind.ALIAS, DictOf(owner.source))
            shared = instance_dict(owner.standin)
            assert shared is not None
            set_instance_dict(standin, shared)
            tracker.initial_dict = owner.initial if owner.initial_dict is None else owner.initial_dict
            tracker.dict_owner = owner
        elif known is not None and type(value) is types.SimpleNamespace:  # its dict cannot be assigned
            raise Break("SB006", "a SimpleNamespace whose __dict__ was met before")
        elif known is not None:  # the dict was met before the object itself: its shadow is the shadow's own dict
            heap.guard(DictOf(source), Kind.ALIAS, known.source)
            set_instance_dict(standin, known.standin)
            tracker.initial_dict, known.part_of = known.initial, tracker
            if id(known) in heap.changes.written:
                heap.changes.written[id(tracker)] = tracker
        else:
            tracker.initial_dict = {n: heap.box(v, Key, DictOf(source), n) for n, v in namespace.items()}
            instance_dict(standin).update(tracker.initial_dict)  # type: ignore[union-attr]
    members = slot_members(type(value))
    tracker.initial_slots = {} if members else None
    for member in members:
        with contextlib.suppress(AttributeError):  # a slot that is not set
            box = heap.box(member.__get__(value), functools.partial(_slot, member), source)
            tracker.initial_slots[member] = box  # type: ignore[index]
            member.__set__(standin, box)


def _slot(member: Any, base: Source) -> Slot:
    return Slot(base, member.__name__, member.__objclass__)


def guard_parts(heap: Heap, tensor: torch.Tensor, source: Source, wrapper: object) -> None:
    """Guard the inner tensors of a wrapper: their names, their metadata, the context."""
    names, context = flatten(tensor)
    heap.guard_call(same_flattening, True, source, Pinned(tuple(names)), Pinned(context))
    for name in names:
        inner, inner_source = getattr(tensor, name), part_source(tensor, source, name)
        fake = getattr(wrapper, name)
        if type(fake) is FakeTensor and fake._has_symbolic_sizes_strides:
            outer = heap.recorder.wrappers.outers[id(wrapper)]
            heap.recorder.wrappers.define_part(outer, name, fake, inner_source)
        heap.guard(inner_source, Kind.TENSOR, heap.recorder.meta_of(inner, fake))
        if acts_as_wrapper(type(inner)):
            guard_parts(heap, inner, inner_source, fake)


def guard_owner(heap: Heap, tensor: torch.Tensor, source: Source) -> None:
    """Guard that a tensor, which the graph reads from a wrapper among its inputs, is that inner tensor."""
    known = heap.recorder.wrappers.parts.get(id(tensor))
    with torch._C.DisableTorchFunction():  # the tracer's own mode is on
        if known is None or tensor.requires_grad:
            return
        tracker = heap.by_standin[id(known[0])]
        place = part_source(tracker.original, tracker.source, known[1])
    if place != source:
        heap.guard(source, Kind.ALIAS, place)


def open_parts(heap: Heap, tensor: torch.Tensor, source: Source) -> dict[str, Any]:
    """The dimensions of each inner tensor that become symbols."""
    return {name: heap.shapes.open_dims(getattr(tensor, name), part_source(tensor, source, name))
            for name in flatten(tensor)[0]}


def part_source(tensor: torch.Tensor, source: Source, name: str) -> Source:
    own, slot = instance_dict(tensor), inspect.getattr_static(type(tensor), name, None)
    if type(slot) is types.MemberDescriptorType:
        return Slot(source, name, slot.__objclass__)
    if own is not None and name in own:
        return Key(DictOf(source), name)
    return CallOf(Pinned(getattr), (source, Pinned(name))) if type(slot) is property else Attr(source, name)


def written_leaves(tensor: torch.Tensor, source: Source, node: fx.Node, written: set[fx.Node]
                   ) -> list[tuple[torch.Tensor, Source, bool]]:
    """The plain tensors of an input, and whether an operation may write to each; `written`: nodes of written memory."""
    if not is_jagged(tensor):
        return [(*leaf, node in written) for leaf in leaf_sources(tensor, source)]
    # Operations on a jagged tensor write to its values; to other parts, only those on the parts themselves.
    if any(each.target is getattr and each.args[0] is node and each.args[1] != "_values" for each in written):
        raise Break("SB017", "a write to the offsets of a jagged tensor, which compilers would not do")
    return [(getattr(tensor, name), part_source(tensor, source, name), node in written and name == "_values")
            for name in flatten(tensor)[0]]


def leaf_sources(tensor: torch.Tensor, source: Source) -> list[tuple[Any, Source]]:
    """The plain tensors that a tensor is made of, and where they are."""
    if not acts_as_wrapper(type(tensor)):
        return [(tensor, source)]
    return [leaf for name in flatten(tensor)[0]
            for leaf in leaf_sources(getattr(tensor, name), part_source(tensor, source, name))]
