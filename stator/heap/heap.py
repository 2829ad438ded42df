"""Adopt outside values: a user's object and where it was read  ->  a stand-in, and the guards behind it.

    heap.adopt([t, 3], Local("xs"))  ->  a list of two unread boxes, `type(xs) is list` guarded

Identity is kept both ways: one user object has one stand-in, for as long as the trace lives.
"""

from __future__ import annotations

import asyncio
import collections
import enum
import functools
import types
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.analysis.shared_memory import awaits_history
from stator.graph.metadata.input_layouts import (
    PLAIN_CLASSES,
    acts_above_dispatch,
    acts_as_parameter,
    acts_as_wrapper,
)
from stator.graph.record.nested_tensors import is_jagged, nested_facts
from stator.graph.record.recorder import Recorder
from stator.guards.guard import Kind, is_constant
from stator.heap.adopt.instances import adopt_instance, guard_owner, guard_parts, open_parts
from stator.heap.adopt.outside_arrays import Arrays, array_adopters
from stator.heap.adopt.outside_sets import adopt_members
from stator.heap.adopt.small_holders import adopt_unread, adopt_value, holder_adopters, is_struct_sequence
from stator.heap.exposure import Exposure, store_of
from stator.heap.identity_facts import Constants
from stator.heap.iterators.outside_iterators import iterator_adopters
from stator.heap.iterators.peekable_iterators import (
    AHEAD,
    COMPOSITES,
    COPIED,
    ENDLESS,
    SEQUENCES,
    adopt_peekable,
)
from stator.heap.pure_readers import (
    default_factory_of,
    entries_of_class,
    hashed,
    proxy_of_class,
    put_traceback,
    reduced,
    traceback_of,
)
from stator.heap.raw_access import (
    CONSTANT_TYPES,
    IDENTITY_TYPES,
    instance_dict,
    is_constant_tuple,
    is_member_of_pybind,
    items_in_order,
    new_shell,
)
from stator.heap.records import ReplayedObjects, Scope
from stator.heap.shared_state import Faces
from stator.heap.tracker import ShadowKind, VariableTracker, recorded
from stator.host.suspended_patches import names_of_module
from stator.host.value_kinds import is_a, module_of
from stator.shapes.symbolic_values import SYMBOLIC
from stator.shapes.tensor_marks import STATIC_CLASS_MARK
from stator.source import (
    Attr,
    CallOf,
    CellOf,
    DictOf,
    Index,
    Key,
    KeyAt,
    Local,
    Pinned,
    Source,
    ValueAt,
    root_of,
)

Adopter = Callable[[Any, Source], Any]
_FINALIZERS: Any = weakref.finalize._registry  # type: ignore[attr-defined]


class Heap(Exposure):
    """Every outside value one trace has met."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        recorder.services.open_parts = functools.partial(open_parts, self)
        self.constants, self.arrays, self.faces = Constants(self), Arrays(self), Faces(self)
        self.replayed = ReplayedObjects()
        self.glanced: list[tuple[Any, Source]] = []  # empty tables of which nothing else was read, and their places
        self.answers: dict[Any, Any] = {}  # of calls that a guard repeats
        self.refused: dict[int, Break] = {}  # objects without a stand-in -> why they have none
        self.bound_objects: tuple[object, ...] = ()  # what the compiled callable is bound to, which owns the entries
        self.held_views: dict[int, memoryview] = {}  # of buffers that somebody outside has a view of
        self.tracebacks: list[tuple[BaseException, Any]] = []  # what the user's exceptions had when they were met
        self.trace_numpy = True  # numpy's functions on the memory of tensors are operations of the graph
        self.unread_met = False  # whether a value that changes too often was met
        self.adopters: dict[type, Adopter] = {
            list: self._adopt_list, dict: self._adopt_dict, tuple: self._adopt_tuple, set: self._adopt_set,
            frozenset: self._adopt_frozenset, collections.deque: self._adopt_list,
            torch.Size: self._adopt_size, slice: self._adopt_slice, types.CellType: self._adopt_cell,
            types.FunctionType: self._adopt_function, types.MethodType: self._adopt_method,
            collections.OrderedDict: self._adopt_dict, collections.defaultdict: self._adopt_dict,
        }
        self.adopters.update(dict.fromkeys(CONSTANT_TYPES, self._adopt_constant))
        self.adopters.update({int: self._adopt_number, float: self._adopt_number})
        self.adopters.update(dict.fromkeys(IDENTITY_TYPES, self._adopt_identity))
        self.adopters.update(iterator_adopters(self))
        for cls in SEQUENCES | COMPOSITES | ENDLESS | COPIED | AHEAD:
            otherwise = self.adopters.get(cls, self._adopt_opaque)
            self.adopters[cls] = functools.partial(adopt_peekable, self, otherwise=otherwise)
        self.adopters.update({**holder_adopters(self), **array_adopters(self)})

    def allows_replay(self) -> bool:
        return not self.unread_met and self.shapes.is_plain() and not self.changes.reached

    def undo(self) -> None:
        """Restore tracebacks of the user's exceptions: the trace has put the interpreter's own frames there."""
        for value, before in self.tracebacks:
            put_traceback(value, before)

    def clear(self) -> None:
        super().clear()
        for state in (self.replayed, self.constants, self.arrays, self.faces):
            state.clear()  # type: ignore[attr-defined]

    def adopt(self, value: object, source: Source) -> Any:
        if self.shapes.gives_up(value, source):
            return adopt_unread(self, value, source)
        if self.replayed.objects:
            self.adopt_replayed(value, source)
        adopter = self.adopters.get(type(value))
        if adopter is None:
            adopter = self.adopters[type(value)] = self._choose(value)
        return adopter(value, source)

    def adopt_replayed(self, value: object, source: Source | None = None) -> None:
        """An object that only a replay has seen so far has the record that its first place gives it."""
        owned = self.replayed.dicts.pop(id(value), None)
        found = owned or self.replayed.objects.pop(id(value), None)
        if found is not None:
            original, instance, place = found
            first = instance.source(place)
            if owned or first != source:
                self.adopt(original, first)

    def _choose(self, value: object) -> Adopter:
        cls = type(value)
        if is_a(value, torch.Tensor):
            return self._adopt_tensor
        if is_a(value, (type, types.ModuleType, enum.Enum, torch._ops.OperatorBase)) or module_of(cls) == "typing" \
                or is_member_of_pybind(cls):
            return self._adopt_identity  # what typing makes (aliases, type variables) is never changed
        if is_a(value, BaseException):
            return self._adopt_exception
        if cls in SYMBOLIC:
            return self._refuse_number
        if is_a(value, asyncio.BaseEventLoop):  # its finalizer warns of a loop that is not closed
            return self._adopt_opaque
        if type(getattr(cls, "__del__", None)) is types.FunctionType:
            return self._adopt_finalized
        if is_struct_sequence(cls):
            return functools.partial(adopt_value, self)
        return self._adopt_instance if new_shell(cls) is not None else self._adopt_opaque

    def _adopt_number(self, value: Any, source: Source) -> Any:
        if self.tables.hashing or not self.shapes.is_open(value, source) or self._is_held_static(source):
            return self._adopt_constant(value, source)
        self.guard(source, Kind.TYPE, type(value))
        return self.recorder.add_number(value, source, *self.shapes.number_choice(value, source))

    def _is_held_static(self, source: Source) -> bool:
        """Whether a number lies in an instance of a class that is marked so (see shapes/tensor_marks)."""
        above = (source.base, getattr(source.base, "base", None))
        return any(tracker.source in above and type(tracker.original).__dict__.get(STATIC_CLASS_MARK)
                   for tracker in self.trackers if is_a(tracker.original, torch.nn.Module))

    def _adopt_constant(self, value: object, source: Source) -> object:
        self.guard(source, Kind.EQUALS, value)
        self.constants.note(value, source)
        if value != value:  # a NaN: containers find it by identity, so results hold the very object
            known = self.sources.setdefault(id(value), source)
            if known != source:
                self.guard(source, Kind.ALIAS, known)
        return value

    def _adopt_identity(self, value: object, source: Source) -> object:
        self.guard(source, Kind.ID, value)
        if is_a(value, type) and type(value) is not type:
            self.guard(Pinned(value), Kind.TYPE, type(value))  # which `cls.__class__ = ...` replaces
        if type(value) in _REMADE:
            self.sources.setdefault(id(value), Pinned(value))
            self.kept.append(value)
        return value

    @recorded
    def _adopt_opaque(self, value: object, source: Source) -> object:
        """The user's object itself: its class is a fact; which object it is, once C code looks at it."""
        self.guard(source, Kind.TYPE, type(value))
        return self.register(VariableTracker(value, value, source, ShadowKind.OPAQUE)).standin

    def _refuse_number(self, value: object, source: Source) -> Any:
        raise Break("SB005", f"a {type(value).__name__} of another trace")

    def _adopt_finalized(self, value: object, source: Source) -> Any:
        """Of what the compiled callable is bound to: it lives as long as the entries that keep it."""
        if any(value is each for each in self.bound_objects) and new_shell(type(value)) is not None:
            return self._adopt_instance(value, source)
        raise Break("SB019", f"{type(value).__name__} has a finalizer, and the trace would keep the object alive")

    @recorded
    def _adopt_exception(self, value: BaseException, source: Source) -> BaseException:
        """An exception from outside stands for itself: its class is a fact, its arguments once they are read."""
        self.guard(source, Kind.TYPE, type(value))
        self.tracebacks.append((value, traceback_of(value)))
        return self.register(VariableTracker(value, value, source, ShadowKind.OPAQUE)).standin

    @recorded
    def _adopt_tensor(self, value: object, source: Source) -> Any:
        if type(value) in PLAIN_CLASSES and awaits_history(value):
            raise Break("SB016", "a view whose history autograd has not made since its base was written to")
        if self.faces.copies:
            self.faces.add_tensor(value, source)
        guard_owner(self, value, source)
        fake = self.recorder.add_input(value, source, self.shapes.open_dims(value, source),
                                       self.shapes.open_strides(value, source))
        tracker = self.register(VariableTracker(fake, value, source, ShadowKind.TENSOR))
        if is_jagged(value):
            self.guard_call(nested_facts, nested_facts(value), source)
        else:
            self.guard(source, Kind.TENSOR, self.recorder.meta_of(value, fake))
        if type(value) not in PLAIN_CLASSES:
            self._guard_class(value, fake, source)
        if value.__dict__:
            tracker.initial_dict = {n: self.box(v, Key, DictOf(source), n) for n, v in value.__dict__.items()}
        return fake

    def _guard_class(self, value: object, fake: FakeTensor, source: Source) -> None:
        asked = acts_as_parameter
        if id(fake) in self.recorder.classes:
            asked = acts_as_wrapper if id(fake) in self.recorder.wrappers.behind else acts_above_dispatch
        self.guard_call(asked, True, Pinned(type(value)))
        if asked is acts_as_wrapper:
            with torch._C.DisableTorchFunction():
                guard_parts(self, value, source, self.recorder.wrappers.behind[id(fake)])

    def _adopt_size(self, value: object, source: Source) -> Any:
        if not is_constant(value):
            raise Break("SB017", "the sizes of a nested tensor")
        return self._adopt_constant(value, source)

    @recorded
    def _adopt_slice(self, value: object, source: Source) -> Any:
        parts = [self.adopt(getattr(value, n), Attr(source, n)) for n in ("start", "stop", "step")]
        self.guard(source, Kind.TYPE, slice)
        return self.register(VariableTracker(slice(*parts), value, source, ShadowKind.VALUE)).standin

    @recorded
    def _adopt_list(self, value: Any, source: Source) -> Any:
        boxes = [self.box(item, Index, source, i) for i, item in enumerate(value)]
        standin = collections.deque(boxes, value.maxlen) if type(value) is collections.deque else list(boxes)
        self.guard_type(self.register(VariableTracker(standin, value, source, ShadowKind.LIST, boxes)))
        if type(value) is collections.deque:
            self.guard(Attr(source, "maxlen"), Kind.EQUALS, value.maxlen)
        return standin

    def _adopt_tuple(self, value: Any, source: Source) -> Any:
        if is_constant_tuple(value) and not self.shapes.opens_tuple(value, source):
            return self._adopt_constant(value, source)
        return self._adopt_items(value, source)

    @recorded
    def _adopt_items(self, value: Any, source: Source) -> Any:
        boxes = [self.box(item, Index, source, i) for i, item in enumerate(value)]
        tracker = self.register(VariableTracker(tuple(boxes), value, source, ShadowKind.TUPLE, boxes))
        self.guard_type(tracker)
        self.guard(source, Kind.LEN, len(value))
        return tracker.standin

    def _adopt_dict(self, value: object, source: Source) -> Any:
        owner = self.dicts.namespaces.get(id(value))
        if owner is not None:  # the __dict__ of an object: the two must stay one
            self.guard(source, Kind.ALIAS, DictOf(owner.source))
            own = instance_dict(owner.standin)
            assert own is not None
            self.note_namespace(own, owner.standin, owner)
            return own
        scope = self.scopes.get(id(value))
        if scope is not None and scope.shadow is None and scope.source != source:  # globals() by another name
            scope.view()
        return self._adopt_entries(value, source)

    @recorded
    def _adopt_entries(self, value: Any, source: Source) -> Any:
        if value is _FINALIZERS:
            raise Break("SB019", "weakref.finalize, whose registry changes whenever an object dies")
        cls = type(value)
        # Breaks where there is no such order, or a key's hash has effects, before there is a record.
        entries = enumerate(items_in_order(names_of_module(value)))
        self.services.check_hashes([hashed(self, key, KeyAt(source, i)) for i, (key, _) in entries
                                    if type(key) not in CONSTANT_TYPES])
        standin: Any = cls(self.default_factory(value, source)) if cls is collections.defaultdict else cls()
        tracker = self.register(VariableTracker(standin, value, source, ShadowKind.DICT))
        self.guard_type(tracker)
        self.fill_dict(tracker, names_of_module(value), standin, source)
        return standin

    def default_factory(self, value: Any, source: Source) -> Any:
        return self.adopt(default_factory_of(value), CallOf(Pinned(default_factory_of), (source,)))

    def fill_dict(self, tracker: VariableTracker, value: Any, standin: object, source: Source) -> None:
        store = store_of(type(standin))
        initial: dict[Any, Any] = {}
        for i, (key, item) in enumerate(items_in_order(names_of_module(value))):
            if type(key) in CONSTANT_TYPES:
                initial[key] = box = self.box(item, Key, source, key)
                store(standin, key, box)
                continue
            # An object as a key: found again by its position, so the order of keys becomes a fact.
            key, box = hashed(self, key, KeyAt(source, i)), self.box(item, ValueAt, source, i)
            tracker.exposed = True
            self.services.run_native(store, (standin, key, box))
            self.services.run_native(dict.__setitem__, (initial, key, box))
        if tracker.exposed:
            tracker.exposed = False
            self.guard(source, Kind.LEN, len(initial))
        tracker.initial = initial

    def _adopt_frozenset(self, value: Any, source: Source) -> Any:
        if all(type(item) in CONSTANT_TYPES for item in value):
            return self._adopt_constant(value, source)
        return self._adopt_set(value, source)

    @recorded
    def _adopt_set(self, value: object, source: Source) -> Any:
        standin, members, table = adopt_members(self, value, source, type(value))
        tracker = self.register(VariableTracker(standin, value, source, ShadowKind.SET))
        self.know_set(tracker, members, table)
        self.guard_type(tracker)
        return standin

    @recorded
    def _adopt_cell(self, value: types.CellType, source: Source) -> types.CellType:
        tracker = self.register(VariableTracker(types.CellType(), value, source, ShadowKind.CELL))
        if value == types.CellType():
            self.guard(source, Kind.CELL_EMPTY, None)
        else:
            tracker.initial = tracker.standin.cell_contents = self.box(value.cell_contents, CellOf, source)
        return tracker.standin

    def _adopt_function(self, value: types.FunctionType, source: Source) -> FunctionType:
        root = root_of(source)
        while is_a(root, CallOf) and root.fn == _REDUCED:  # of an iterator, which a call may make
            root = root_of(root.args[0])
        if not is_a(root, Local):
            self.guard(source, Kind.ID, value)
            self.sources.setdefault(id(value), Pinned(value))
        elif id(value) not in self.sources:
            self.guard(source, Kind.TYPE, types.FunctionType)
            self.guard(Attr(source, "__code__"), Kind.ID, value.__code__)
            self.sources[id(value)] = source
            self.kept.append(value)
        elif self.sources[id(value)] != source:
            self.guard(source, Kind.ALIAS, self.sources[id(value)])
        return value

    @recorded
    def _adopt_method(self, value: types.MethodType, source: Source) -> Any:
        self.guard(source, Kind.TYPE, types.MethodType)
        func = self.adopt(value.__func__, Attr(source, "__func__"))
        standin = types.MethodType(func, self.adopt(value.__self__, Attr(source, "__self__")))
        return self.register(VariableTracker(standin, value, source, ShadowKind.VALUE)).standin

    _adopt_instance = adopt_instance

    def class_view(self, cls: type) -> Any:
        """A class's `__dict__`: a read-only view of a shadow, guarded by what is read of it."""
        found = self.dicts.class_views.get(cls)
        if found is None:
            entries, source = entries_of_class(cls), CallOf(Pinned(entries_of_class), (Pinned(cls),))
            tracker = self.register(VariableTracker({}, entries, source, ShadowKind.DICT))
            self.fill_dict(tracker, entries, tracker.standin, source)
            found = self.dicts.class_views[cls] = types.MappingProxyType(tracker.standin)
            place = CallOf(Pinned(proxy_of_class), (Pinned(cls),))
            self.register(VariableTracker(found, proxy_of_class(cls), place, ShadowKind.VALUE))
        return found

    def scope(self, namespace: dict[str, Any]) -> Scope:
        found = self.dicts.made_scopes.get(id(namespace)) or self.scopes.get(id(namespace))
        if found is None:
            found = self.scopes[id(namespace)] = Scope(self, namespace)
            if id(namespace) in self.by_original:  # it was met as a dict before
                found.view()
        return found


# Made anew where they come from the trace: one from outside must be known as such.
_REDUCED = Pinned(reduced)
_REMADE = frozenset({property, classmethod, staticmethod, types.GenericAlias})
