"""Rules for hashes.   hash(value)  ->  the number that the user's objects give, not that of their stand-ins

An object without a `__hash__` of its own hashes by its address.  Of one from outside, that it is this very object
becomes a fact; one made inside will be another in the residual, which asks again where the number leaves.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.heap.blank_instances import CONSTANT_TYPES, IDENTITY_TYPES
from stator.heap.raw_access import raw_members
from stator.host.value_kinds import is_a
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.lookup import MISSING, find
from stator.interp.numbers import symbolic_numbers
from stator.interp.objects.operators import call_slot
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.torch_function_protocol import own_method
from stator.interp.vm import VM

_BY_ADDRESS = frozenset({object.__hash__, torch.Tensor.__hash__})
_BY_MEMBERS = frozenset({tuple.__hash__, frozenset.__hash__})
_BY_RECEIVER = frozenset({types.MethodType.__hash__, types.BuiltinFunctionType.__hash__,
                          types.MethodWrapperType.__hash__})


class HashOf(Continuation):
    """hash(): `__hash__` must answer with an int, of which the size of a pointer is taken."""

    __slots__ = ("cont",)

    def __init__(self, cont: Any) -> None:
        self.cont = cont

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
def _hash(vm: VM, cont: Any, value: Any, /) -> None:
    value = symbolic_numbers.specialise_deep(vm, value)
    method = _method(vm, value)
    if type(method) is types.FunctionType and type(value) is not FakeTensor:
        return vm.call_function(method, (value,), None, HashOf(cont))
    if method is weakref.ref.__hash__ and (referent := weakref.ref.__call__(value)) is not None:
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
def _object_hash(vm: VM, value: Any, /) -> int:
    return _noted(vm, value, object.__hash__(vm.guard_identity(value)))


@suspending_rule(*_BY_MEMBERS)
def _hash_of_members(vm: VM, cont: Any, callee: Any, value: Any, /) -> None:
    if _method(vm, value) is callee:
        return _hash(vm, cont, value)
    vm.call_listed(callee, callee, None, (value,), {}, cont)


def _method(vm: VM, value: object) -> Any:
    found = find(vm, type(value), "__hash__") if type(value) is not FakeTensor else object.__hash__
    return type(found) if type(found).__hash__ is None else found  # pybind11's methods have no hash themselves


def _of_the_users(vm: VM, value: object) -> Any:
    """A tuple or frozenset with the user's own objects in it, where they hash by their addresses."""
    method = _method(vm, value)
    if method in _BY_ADDRESS:
        return vm.guard_identity(value) if vm.heap.by_standin.get(id(value)) is not None else value
    if method in _BY_RECEIVER:
        return _of_the_users_receiver(vm, value)
    if method not in _BY_MEMBERS:
        return value
    members = list(raw_members(value))
    changed = [_of_the_users(vm, member) for member in members]
    if all(new is old for new, old in zip(changed, members, strict=True)):
        return value
    return tuple(changed) if method is tuple.__hash__ else vm.native(frozenset, (changed,))


def _of_the_users_receiver(vm: VM, method: Any) -> Any:
    """A method of an object from outside, which hashes by its receiver's address."""
    receiver = method.__self__
    if vm.heap.by_standin.get(id(receiver)) is None:
        return method
    if type(method) is not types.MethodType:
        raise Break("SB013", f"the hash of the method {method.__name__!r} of an object from outside")
    return types.MethodType(method.__func__, vm.guard_identity(receiver))


def _noted(vm: VM, value: object, number: int) -> int:
    """The residual's object has another address: it is asked again where the number leaves the trace."""
    if _moves(vm, value):
        vm.identity.hashes[number] = value
    return number


_STAYING = (type, types.ModuleType, type(None))


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
