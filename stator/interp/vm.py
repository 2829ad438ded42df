"""The interpreter, whole: the loop, the call protocol, iteration, and the services for handlers and rules."""

from __future__ import annotations

import ctypes
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch
from numpy import ndarray
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.record.recorder import Recorder
from stator.guards.guard import Kind
from stator.heap.adopt.outside_sets import walk
from stator.heap.heap import Heap
from stator.heap.iterators.peekable_iterators import is_endless, note_next
from stator.heap.pure_readers import mapping_behind
from stator.heap.tracker import Box, ShadowKind
from stator.host.suspended_patches import original
from stator.host.value_kinds import is_a, module_of, name_in_errors
from stator.interp import lookup, noted_effects, torch_function_protocol
from stator.interp.arrays.native_numpy import items_of
from stator.interp.arrays.traced_numpy import concerns
from stator.interp.calls import call_protocol, function_modes, native_calls
from stator.interp.calls.module_calls import ModuleCalls
from stator.interp.frame import Continuation, ExcState, Frame, Raised
from stator.interp.generators import async_opcodes, suspended_frames  # noqa: F401  (registers)
from stator.interp.generators.generators import Generators, walked_generator
from stator.interp.iteration import IteratorOf, is_iterator
from stator.interp.key_effects import check_hashes
from stator.interp.lookup import MISSING, find, is_mutable_class
from stator.interp.machine import Lines, Machine
from stator.interp.mechanisms import LOOK_MASK, clear
from stator.interp.objects import attributes, descriptors, process_facts
from stator.interp.objects.descriptors import call_special
from stator.interp.opcodes import exception_opcodes, opcodes_since_312, opcodes_since_313, opcodes_since_314  # noqa: F401  (register all)
from stator.shapes.symbolic_values import PYTHON_TYPES, UNREAD

_PLAIN_SEQUENCES = (list, tuple)
_is_sequence = ctypes.pythonapi.PySequence_Check  # C types may have `__getitem__` as mappings have it
_is_sequence.argtypes = [ctypes.py_object]
_SIMPLE_ITERATORS = {type(iter([])), type(iter(())), type(iter(range(0))), type(iter("")), type(iter(b"")),
                     type(iter(range(1 << 70))), type(iter({})), type(iter({}.values())), type(iter(set()))}
_WORLD = ("torch._C._distributed_c10d", "torch.distributed.distributed_c10d")  # process groups and reductions
_WHOLE = (FakeTensor, list, tuple, dict, str, range, bytes)


class VM(Machine):
    """One trace's interpreter: the loop, and the functions that handlers and rules call through it."""

    MISSING = MISSING
    hears_numpy = False  # while warnings of a numpy call are collected
    call, call_function, call_marked = call_protocol.call, call_protocol.call_function, call_protocol.call_marked
    frame_for, guard_code, closure_of = call_protocol.frame_for, call_protocol.guard_code, call_protocol.closure_of
    torch_call, torch_attribute = call_protocol.torch_call, call_protocol.torch_attribute
    ask_modes = function_modes.perform  # an operation while modes of the program are on
    native, native_unhooked = native_calls.native, native_calls.native_unhooked
    call_native, call_listed, call_own = native_calls.call_native, native_calls.call_listed, native_calls.call_own
    sync, call_sync, intercepted = call_protocol.sync, call_protocol.call_sync, native_calls.intercepted
    handed_to_c, python_callable = native_calls.handed_to_c, native_calls.python_callable
    is_python_iterable, check_order = native_calls.is_python_iterable, process_facts.check_order
    admit_slot, expose_for = native_calls.admit_slot, native_calls.expose_for
    guard_special_methods = native_calls.guard_special_methods
    guard_slots_of_tensors = native_calls.guard_slots_of_tensors
    find, bind, adopt_entry = lookup.find, descriptors.bind, descriptors.adopt_entry
    load_attr, give_tensor_member = attributes.load_attr, attributes.give_tensor_member
    optional_attr, special_method = exception_opcodes.optional_attr, exception_opcodes.special_method
    note_conversion = noted_effects.note_conversion
    asked, concerned = function_modes.ask, torch_function_protocol.concerned  # by torch; of a class
    walked = walked_generator

    def __init__(self, heap: Heap, recorder: Recorder) -> None:
        super().__init__(heap, recorder)
        self.module_calls = ModuleCalls()
        self.generators = Generators(self)
        heap.services.run_native, heap.services.handed_to_c = self.native, self.handed_to_c
        heap.services.asked_by_c = self.guard_special_methods
        heap.services.check_hashes = functools.partial(check_hashes, self)
        recorder.region.function_modes = self.modes.active
        recorder.services.ask, recorder.services.concerned = self.asked, self.concerned

    def release(self) -> None:
        for body in [*dict.values(self.generators), *[reference() for reference in self.generators.bodies]]:
            if body is not None and body.frame is not None:  # frames that wait are in cycles of their own
                body.frame.locals, body.frame.stack, body.frame.func = [], [], None
        dict.clear(self.generators)
        self.generators.bodies.clear()
        clear(self)
        self.fresh.clear()
        self.recorder.clear()
        self.module_calls = ModuleCalls()
        self.exc_state = ExcState()
        self.lines = Lines()
        self.frame = self.pending = self.replay = self.escaped = None

    def is_constant_object(self, value: object) -> bool:
        """An opaque object whose C methods the native table lists as pure: it is what its identity says."""
        return module_of(type(value)) in ("re", "_sre", "datetime", "decimal", "fractions", *_WORLD)

    def tick(self) -> None:
        progress = self.progress
        progress.jumps += 1
        if progress.jumps > progress.limit:
            raise Break("SB011", f"the trace has run {progress.limit:,} loop iterations "
                        "(stator.config.capture_iteration_limit)", whole_frame=True)
        if not progress.jumps & LOOK_MASK:
            progress.look(self)

    def is_iterable(self, value: object) -> bool:
        cls = type(value)
        return cls is FakeTensor or find(self, cls, "__iter__") is not MISSING \
            or find(self, cls, "__getitem__") is not MISSING and (is_mutable_class(cls) or bool(_is_sequence(value)))

    def get_iter(self, value: Any, cont: object = None) -> None:
        cls = type(value)
        if cls is FakeTensor:
            if id(value) in self.recorder.classes or "__iter__" in self.modes.patched:
                return self.iterate_subclass(value, cont)
            return self.give(iter(self.unbind(value)), cont)
        if cls in _PLAIN_SEQUENCES:
            self.heap.expose_length(value)
            return self.give(iter(value), cont)
        if self.generators.iterated(value) is not None:
            return self.give(value, cont)
        if cls is ndarray and self.heap.trace_numpy and value.ndim and concerns(self, (value,)):
            return self.give(iter(items_of(self, value)), cont)
        if cls in UNREAD and is_iterator(PYTHON_TYPES[cls]):
            return self.give(value, cont)
        method = find(self, cls, "__iter__")
        if type(method) is types.FunctionType:
            return self.call_function(method, (value,), None, IteratorOf(cont))
        if method is MISSING or method is None:
            if find(self, cls, "__getitem__") is MISSING or method is None:
                raise Raised(TypeError(f"'{name_in_errors(cls)}' object is not iterable"))
        elif type(method) is not types.WrapperDescriptorType:
            return self.call(self.special_method(value, "__iter__", ""), (), {}, IteratorOf(cont))
        self.give(self.native_iter(value), cont)

    def iterate_subclass(self, value: object, cont: object) -> None:
        method = torch_function_protocol.own_method(self, value, "__iter__")
        if method is not None:
            return call_special(self, method, value, (), IteratorOf(cont))
        if torch_function_protocol.concerned(self, (value,)):
            return self.give(function_modes.perform(self, torch.Tensor.__iter__, (value,), None), cont)
        self.give(iter(self.unbind(value)), cont)

    def native_iter(self, value: object) -> Any:
        """iter() of something whose `__iter__` is C code."""
        if type(value) is types.MappingProxyType and is_a(mapping_behind(value), dict):
            return self.native_iter(mapping_behind(value))
        tracker = self.heap.by_standin.get(id(value))
        if tracker is not None:
            if tracker.shape is ShadowKind.OPAQUE:
                raise Break("SB014", f"a {type(value).__name__} from outside")
            if tracker.shape is ShadowKind.DICT:
                self.heap.expose_keys(tracker)
            elif tracker.shape is ShadowKind.SET and not tracker.table.exact:
                return walk(self.heap, tracker)
            elif is_endless(tracker):
                return value
            else:
                self.heap.expose(value)
        elif is_a(value, (set, frozenset)):
            self.check_order(value)
            self.heap.expose(value)
        return self.native(iter, (value,))

    def unbind(self, value: Any) -> Any:
        self.recorder.slots_used.add("__iter__")
        if find(self, torch.Tensor, "unbind") is not original("unbind"):  # which Tensor.__iter__ calls
            raise Break("SB005", "iteration over a tensor: Tensor.unbind was replaced")
        if value.dim() == 0:
            raise Raised(TypeError("iteration over a 0-d tensor"))
        return self.torch_call(torch.Tensor.unbind, (value, 0), None)

    def collect(self, iterable: Any) -> list[Any]:
        cls = type(iterable)
        if cls in _PLAIN_SEQUENCES:
            self.heap.expose(iterable)
            return list(iterable)
        if cls is FakeTensor and id(iterable) not in self.recorder.classes and "__iter__" not in self.modes.patched:
            return list(self.unbind(iterable))
        iterator = self.sync(lambda: self.get_iter(iterable))
        self.heap.expose(iterator)
        if type(iterator) in _SIMPLE_ITERATORS:
            return [item.force() if type(item) is Box else item for item in iterator]
        if type(find(self, type(iterator), "__next__")) is types.WrapperDescriptorType \
                and self.generators.iterated(iterator) is None:
            self.refuse_outside_iterator(iterator)
            return [item.force() if type(item) is Box else item for item in self.native(list, (iterator,))]
        items: list[Any] = []
        while True:
            item = self.next_or_missing(iterator)
            if item is MISSING:
                return items
            items.append(item)
            self.tick()

    def take(self, iterable: object, limit: int) -> list[Any]:
        """At most `limit` items: unpacking looks one item past what it needs, and no further."""
        if type(iterable) in _WHOLE:
            return self.collect(iterable)
        iterator = self.sync(lambda: self.get_iter(iterable))
        items: list[Any] = []
        while len(items) < limit:
            item = self.next_or_missing(iterator)
            if item is MISSING:
                break
            items.append(item)
        return items

    def next_or_missing(self, iterator: object) -> Any:
        try:
            return self.sync(lambda: self.call_next(iterator, None))
        except Raised as raised:
            if not is_a(raised.exc, StopIteration):
                raise
            return MISSING

    def refuse_outside_iterator(self, iterator: object) -> None:
        tracker = self.heap.by_standin.get(id(iterator))
        if tracker is None:
            return
        if tracker.shape is ShadowKind.OPAQUE:
            raise Break("SB014", f"a {type(iterator).__name__} from outside")
        if tracker.shape is ShadowKind.PEEKABLE:
            note_next(self.heap, tracker)

    def for_iter(self, frame: Frame, iterator: Iterator[Any], target: int) -> None:
        if type(iterator) in _SIMPLE_ITERATORS:
            self.refuse_outside_iterator(iterator)
            try:
                value = next(iterator)
            except StopIteration:
                frame.stack.pop()
                frame.ip = target
                return
            except Exception as error:  # a dict changed while it was iterated
                raise Raised(error) from None
            if type(value) is Box and frame.program[frame.ip][1].opname != "STORE_FAST":
                value = value.force()  # else the loop variable stays unread until someone loads it
            frame.stack.append(value)
            return
        body = self.generators.iterated(iterator)
        if body is not None:
            return suspended_frames.resume(self, body, None, suspended_frames.ForNext(target))
        cont = suspended_frames.ForCall(target)
        try:
            self.call_next(iterator, cont)
        except Raised as raised:
            if not cont.raised(self, frame, raised.exc):
                raise

    def call_next(self, iterator: object, cont: Continuation | None) -> None:
        """`iterator.__next__()`; exhaustion is a StopIteration."""
        body = self.generators.iterated(iterator)
        if body is not None:
            return suspended_frames.resume(self, body, None, suspended_frames.NextCall(cont))
        method = find(self, type(iterator), "__next__")
        if method is MISSING:
            raise Raised(TypeError(f"'{name_in_errors(type(iterator))}' object is not an iterator"))
        if type(method) is types.FunctionType:
            return self.call_function(method, (iterator,), None, cont)
        self.refuse_outside_iterator(iterator)
        self.give(self.native(next, (iterator,)), cont)

    def guard_identity(self, value: object) -> Any:
        """The user's object behind `value`; that it is this very object becomes a fact."""
        tracker = self.heap.by_standin.get(id(value))
        if tracker is None:
            self.heap.constants.guard_identity(value)
            return value
        self.heap.guard(tracker.source, Kind.ID, tracker.original)
        return tracker.original
