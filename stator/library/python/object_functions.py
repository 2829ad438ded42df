"""Rules for builtins that read attributes, identity and hashes.   getattr(obj, name), id(obj), hash(obj)

hash() gives the number of the user's object.  An outside object that hashes by its address is guarded by identity; one
made inside is hashed again in the residual where the number leaves the trace.
"""

from __future__ import annotations

import collections
import copy
import sys
import types
import weakref
from inspect import CO_OPTIMIZED
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break, Strategy
from stator.code.opcodes import ONE_DICT_OF_LOCALS
from stator.heap.raw_access import CONSTANT_TYPES, IDENTITY_TYPES, raw_members
from stator.heap.tracker import Box, referring
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.frame import UNBOUND, Continuation, Frame, Raised, outward
from stator.interp.lookup import MISSING, find
from stator.interp.numbers import symbolic_numbers
from stator.interp.objects.assignment import GiveNone, store_attr, store_generic
from stator.interp.objects.attributes import load_attr, load_generic, load_tensor_member, tensor_class
from stator.interp.objects.descriptors import load_type_attr
from stator.interp.objects.operators import call_slot
from stator.interp.objects.process_facts import is_in_repr, note_number
from stator.interp.opcodes.name_opcodes import read_cell
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.torch_function_protocol import own_method
from stator.interp.vm import VM

_LIKE_OBJECT = (object, list, dict, set, frozenset, tuple, int, float, complex, str, bytes, bytearray,
                collections.deque, collections.defaultdict, BaseException)
_BY_ADDRESS = frozenset({object.__hash__, torch.Tensor.__hash__})
_BY_MEMBERS = frozenset({tuple.__hash__, frozenset.__hash__})
_BY_RECEIVER = frozenset({types.MethodType.__hash__, types.BuiltinFunctionType.__hash__,
                          types.MethodWrapperType.__hash__})
_STAYING = (type, types.ModuleType, type(None))
_OF_CLASS_BODIES = ("__class__", "__classdict__")  # cells beside their namespace


class OrDefault(Continuation):
    """getattr with a default, hasattr: AttributeError is an answer."""

    __slots__ = ("cont", "found", "default")
    takes_absence = True

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        vm.give(value if self.found is MISSING else self.found, self.cont)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, AttributeError):
            return False
        self.absent(vm)
        return True

    def absent(self, vm: VM) -> None:
        vm.give(self.default, self.cont)


class OfVars(OrDefault):
    """vars(): its own message where there is no `__dict__`."""

    __slots__ = ()

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if is_a(exc, AttributeError):
            raise Raised(TypeError("vars() argument must have __dict__ attribute"))
        return False


def _try_load(vm: VM, obj: object, name: str, cont: Any) -> None:
    frame = vm.frame
    try:
        load_attr(vm, obj, name, cont)
    except Raised as raised:
        if vm.frame is not frame or not cont.raised(vm, frame, raised.exc):
            raise


@suspending_rule(getattr)
def _getattr(vm: VM, cont: Any, obj: Any, name: Any, default: Any = MISSING, /) -> None:
    require_name(name)
    if default is MISSING:
        return load_attr(vm, obj, name, cont)
    _try_load(vm, obj, name, OrDefault(cont, MISSING, default))


@suspending_rule(hasattr)
def _hasattr(vm: VM, cont: Any, obj: Any, name: Any, /) -> None:
    require_name(name)
    _try_load(vm, obj, name, OrDefault(cont, True, False))


def require_name(name: object) -> None:
    if not is_a(name, str):
        raise Raised(TypeError(f"attribute name must be string, not '{name_in_errors(type(name))}'"))


@suspending_rule(setattr)
def _setattr(vm: VM, cont: Any, obj: Any, name: Any, value: Any, /) -> None:
    require_name(name)
    store_attr(vm, obj, name, value, GiveNone(cont))


@suspending_rule(delattr)
def _delattr(vm: VM, cont: Any, obj: Any, name: Any, /) -> None:
    require_name(name)
    store_attr(vm, obj, name, MISSING, GiveNone(cont))


def _slots(name: str) -> list[Any]:
    """The slots of classes whose attributes are found and set as object does it."""
    return [base.__dict__[name] for base in _LIKE_OBJECT if name in base.__dict__]


def require_own(vm: VM, slot: Any, obj: object, name: object, *value: Any) -> None:
    """Break off where a slot is applied to another class's objects; classes have setters of their own."""
    if slot.__objclass__ is object and is_a(obj, type) and slot.__name__ != "__getattribute__":
        raise Raised(TypeError(f"can't apply this {slot.__name__} to {type(obj).__name__} object"))
    if not is_a(obj, slot.__objclass__):
        vm.native_unhooked(slot, (obj, name, *value))  # raises what eager raises
    require_name(name)


@suspending_rule(*_slots("__getattribute__"))
def _object_getattribute(vm: VM, cont: Any, callee: object, obj: Any, name: Any, /) -> None:
    require_own(vm, callee, obj, name)
    if type(obj) is FakeTensor:
        return load_tensor_member(vm, obj, name, tensor_class(vm, obj), cont)
    if is_a(obj, type):
        raise Break("SB005", "a class, read as an ordinary object is")
    load_generic(vm, obj, name, cont, fallback=False)


@suspending_rule(*_slots("__setattr__"), type.__setattr__, types.ModuleType.__setattr__)
def _object_setattr(vm: VM, cont: Any, callee: Any, obj: Any, name: Any, value: Any, /) -> None:
    require_own(vm, callee, obj, name, value)
    store_generic(vm, obj, name, value, GiveNone(cont))


@suspending_rule(*_slots("__delattr__"), type.__delattr__, types.ModuleType.__delattr__)
def _object_delattr(vm: VM, cont: Any, callee: object, obj: Any, name: Any, /) -> None:
    require_own(vm, callee, obj, name)
    store_generic(vm, obj, name, MISSING, GiveNone(cont))


@suspending_rule(type.__getattribute__)
def _type_getattribute(vm: VM, cont: Any, cls: Any, name: Any, /) -> None:
    require_name(name)
    load_type_attr(vm, cls, name, cont, fallback=False)


@suspending_rule(vars)
def _vars(vm: VM, cont: Continuation | None, obj: object = MISSING, /) -> None:
    if obj is MISSING:
        return vm.give(_locals(vm), cont)
    _try_load(vm, obj, "__dict__", OfVars(cont, MISSING, None))


@rule(locals)
def _locals(vm: VM) -> Any:
    if Strategy.KEPT_LOCALS in vm.turned_off:
        raise Break("SB020", f"{Strategy.KEPT_LOCALS} over a break", whole_frame=True)
    return names_in(vm, vm.running)


def names_in(vm: VM, frame: Frame) -> Any:
    """The namespace that locals() gives in a frame."""
    if frame.names is not None or not frame.code.co_flags & CO_OPTIMIZED:
        names = frame.scope.view() if frame.names is None else frame.names
        hidden = hidden_names(frame)
        return {**vm.call_sync(dict, (names,)), **hidden} if hidden else names
    found: dict[str, Any] = {} if frame.shown_locals is None else frame.shown_locals
    for slot, name in enumerate(frame.unit.local_names):
        value = _local(frame, slot)
        if value is not UNBOUND:
            found[name] = value
        else:
            found.pop(name, None)
    if ONE_DICT_OF_LOCALS:
        frame.shown_locals = found
    return found


def _local(frame: Frame, slot: int) -> object:
    value = frame.locals[slot]
    if slot in frame.unit.cell_slots or slot in frame.unit.free_slots:
        value = read_cell(frame, slot) if type(value) is types.CellType else value
    return value.force() if type(value) is Box else value


def hidden_names(frame: Frame) -> dict[str, object]:
    """Variables of the comprehensions around that are inlined in a class body or a module (since 3.12)."""
    found = {name: _local(frame, slot) for slot, name in enumerate(frame.unit.local_names)
             if slot not in frame.unit.free_slots and name not in _OF_CLASS_BODIES}
    return {name: value for name, value in found.items() if value is not UNBOUND}


def locals_are_kept(vm: VM) -> bool:
    """Whether somebody holds the dict of a frame that is to be left: the next locals() there would fill it again."""
    return any(type(frame) is Frame and frame.shown_locals is not None and sys.getrefcount(frame.shown_locals) > 2
               for frame in outward(vm.frame))


rule(globals)(lambda vm: vm.frame.scope.view())


@rule(id, unasked=True)
def _id(vm: VM, value: object, /) -> int:
    number = id(vm.guard_identity(value))
    note_number(vm, "id")
    if id(value) not in vm.heap.by_standin and (
            type(value) is tuple or type(value) is dict and vm.running.scope.namespace is vars(copy)):
        # And not held: iterators fill a tuple again that nobody else holds; a memo of copy.deepcopy() holds all copies.
        vm.identity.addresses.add(number)
    elif id(value) not in vm.heap.by_standin and find(vm, type(value), "__del__") is MISSING:
        # A key of reprlib comes and goes in a set that outlives the call.
        vm.identity.ids[number] = (lambda: value) if is_in_repr(vm) else referring(value)
    return number


class HashOf(Continuation):
    """hash(): `__hash__` must answer with an int, of which the size of a pointer is taken."""

    __slots__ = ("cont",)

    def returned(self, vm: VM, frame: Frame, value: Any) -> None:
        if not is_a(value, int):
            raise Raised(TypeError("__hash__ method should return an integer"))
        vm.give(hash(_Hashed(value)), self.cont)


class _Hashed:
    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        return self.value


@suspending_rule(hash)
def _hash(vm: VM, cont: Continuation | None, value: Any, /) -> None:
    value = symbolic_numbers.specialise_deep(vm, value)
    if not is_a(value, (int, float, complex)):
        note_number(vm, "hash")
    method = _method(vm, value)
    if type(method) is types.FunctionType and type(value) is not FakeTensor:
        return vm.call_function(method, (value,), None, HashOf(cont))
    if method is weakref.ref.__hash__ and (referent := weakref.ref.__call__(value)) is not None:
        if type(_method(vm, referent)) is types.FunctionType and type(referent) is not FakeTensor:  # kept
            return vm.give(vm.native(hash, (value,)), cont)
        return _hash(vm, cont, referent)
    if type(value) is FakeTensor:
        if (own := own_method(vm, value, "__hash__")) is not None:
            return call_slot(vm, own, (value,), HashOf(cont))
        return vm.call(id, (value,), {}, cont)  # which is what Tensor.__hash__ answers
    if method in _BY_ADDRESS:
        return vm.give(_object_hash(vm, value), cont)
    vm.heap.expose_deep(value)
    value = symbolic_numbers.specialise_deep(vm, value)  # numbers that were only read just now
    if method not in _BY_MEMBERS and method not in _BY_RECEIVER:
        return vm.give(vm.native(hash, (value,)), cont)
    vm.give(_noted(vm, value, vm.native(hash, (_of_the_users(vm, value),))), cont)


@rule(object.__hash__)
def _object_hash(vm: VM, value: object, /) -> int:
    return _noted(vm, value, object.__hash__(vm.guard_identity(value)))


@suspending_rule(*_BY_MEMBERS)
def _hash_of_members(vm: VM, cont: Continuation | None, callee: object, value: object, /) -> None:
    if _method(vm, value) is callee:
        return _hash(vm, cont, value)
    vm.call_listed(callee, callee, None, (value,), {}, cont)


def _method(vm: VM, value: object) -> Any:
    found = find(vm, type(value), "__hash__") if type(value) is not FakeTensor else object.__hash__
    return type(found) if type(found).__hash__ is None else found  # pybind11's methods have no hash themselves


def _of_the_users(vm: VM, value: Any) -> Any:
    """A tuple or frozenset with the user's own objects in it, where they hash by their addresses."""
    method = _method(vm, value)
    if method in _BY_ADDRESS:
        return vm.guard_identity(value) if vm.heap.by_standin.get(id(value)) is not None else value
    if method in _BY_RECEIVER:
        if vm.heap.by_standin.get(id(value.__self__)) is None:
            return value
        if type(value) is not types.MethodType:
            raise Break("SB013", f"the hash of the method {value.__name__!r} of an object from outside")
        return types.MethodType(value.__func__, vm.guard_identity(value.__self__))
    if method not in _BY_MEMBERS:
        return value
    members = list(raw_members(value))
    changed = [_of_the_users(vm, member) for member in members]
    if all(new is old for new, old in zip(changed, members, strict=True)):
        return value
    return tuple(changed) if method is tuple.__hash__ else vm.native(frozenset, (changed,))


def _noted(vm: VM, value: object, number: int) -> int:
    """Note numbers of objects made inside: the residual hashes its own object where the number leaves the trace."""
    if _moves(vm, value):
        vm.identity.hashes[number] = referring(value)
    return number


def _moves(vm: VM, value: Any) -> bool:
    cls = type(value)
    method = _method(vm, value)
    if method in _BY_MEMBERS:
        return any(_moves(vm, member) for member in raw_members(value))
    if method in _BY_RECEIVER:
        return vm.heap.by_standin.get(id(value.__self__)) is None and not is_a(value.__self__, _STAYING)
    if method not in _BY_ADDRESS or vm.heap.by_standin.get(id(value)) is not None or cls is FakeTensor:
        return False
    if is_a(value, (type, types.FunctionType)):
        return id(value) in vm.fresh
    return cls not in IDENTITY_TYPES and cls not in CONSTANT_TYPES and not is_a(value, types.ModuleType) \
        and find(vm, cls, "__del__") is MISSING
