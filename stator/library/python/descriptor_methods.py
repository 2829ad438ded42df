"""Rules for methods of C descriptors, called by hand.   str.upper.__get__(text), slot.__set__(obj, 1)

In: a descriptor written in C and an object.  Out: the bound method, or the assignment that the descriptor stands for.
sys.settrace(None) and sys.setprofile(None) leave settings as they are, where there is no tracing function.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.heap.tracker import Box
from stator.host.value_kinds import is_a
from stator.interp.frame import Continuation
from stator.interp.lookup import MISSING
from stator.interp.objects.assignment import GiveNone, set_descriptor
from stator.interp.objects.operators import compare
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.library.python.types_and_classes import around_super

Getter = Callable[..., object]
Member = types.GetSetDescriptorType | types.MemberDescriptorType
_MEMBERS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_SYMBOLS = {"__lt__": "<", "__le__": "<=", "__eq__": "==", "__ne__": "!=", "__gt__": ">", "__ge__": ">="}
_SUPER_START, _SUPER_OBJECT = vars(super)["__thisclass__"].__get__, vars(super)["__self__"].__get__
_READERS = {id(sys.settrace): sys.gettrace, id(sys.setprofile): sys.getprofile}


@rule(types.MethodDescriptorType.__get__, types.WrapperDescriptorType.__get__, types.ClassMethodDescriptorType.__get__)
def _bind(vm: VM, callee: Getter, descr: object, obj: object, owner: object = None, /) -> object:
    """The bound method holds the stand-in; nothing of it is read."""
    return vm.native_unhooked(callee, (descr, obj, owner))


@suspending_rule(*(kind.__set__ for kind in _MEMBERS))
def _set(vm: VM, cont: Continuation, callee: Getter, descr: Member, obj: object, value: object, /) -> None:
    if not is_a(obj, descr.__objclass__):
        vm.native_unhooked(callee, (descr, obj, value))  # raises what eager raises
    set_descriptor(vm, descr, obj, descr.__name__, value, GiveNone(cont))


@suspending_rule(*(kind.__delete__ for kind in _MEMBERS))
def _delete(vm: VM, cont: Continuation, callee: Getter, descr: Member, obj: object, /) -> None:
    computed = type(descr) is types.GetSetDescriptorType
    if not is_a(obj, descr.__objclass__) or computed and vm.heap.tracker_of(obj) is None:
        vm.native_unhooked(callee, (descr, obj))
        return vm.give(None, cont)
    set_descriptor(vm, descr, obj, descr.__name__, MISSING, GiveNone(cont))


@rule(super.__new__)
def _new_super(vm: VM, cls: object, /, *args: object, **kwargs: object) -> object:
    return vm.native_unhooked(super.__new__, (cls,))


@rule(super.__init__)
def _init_super(vm: VM, proxy: object, /, *args: object) -> None:
    if is_a(proxy, super):
        args = args or around_super(vm)
        if vm.heap.tracker_of(proxy) is not None or any(type(each) is FakeTensor for each in args):
            raise Break("SB005", "super.__init__ of an object from outside, or with a tensor")
    vm.native_unhooked(super.__init__, (proxy, *args))


@rule(vars(super)["__get__"])
def _bind_super(vm: VM, proxy: object, obj: object, owner: object = None, /) -> object:
    if not is_a(proxy, super) or type(proxy) is super or obj is None or _SUPER_OBJECT(proxy) is not None:
        return vm.native_unhooked(vars(super)["__get__"], (proxy, obj, owner))
    return vm.call_sync(type(proxy), (_SUPER_START(proxy), obj))


@rule(classmethod.__new__, staticmethod.__new__)
def _new_holder(vm: VM, callee: Getter, cls: object, /, *args: object, **named: object) -> object:
    return vm.native_unhooked(callee, (cls,))


@rule(classmethod.__init__, staticmethod.__init__)
def _init_holder(vm: VM, callee: Getter, holder: object, /, *args: object, **named: object) -> object:
    """It copies names and attributes of the function: of one from outside these are facts without a guard."""
    function = args[0] if args else None
    if vm.heap.tracker_of(holder) is not None or vm.heap.tracker_of(function) is not None \
            or type(function) is types.FunctionType and id(function) not in vm.fresh:
        raise Break("SB005", f"{callee.__qualname__} of an object from outside")
    return vm.native_unhooked(callee, (holder, *args), named)


def _compare_cells(vm: VM, cont: Continuation, callee: Getter, left: object, right: object, /) -> None:
    """Contents are compared; an empty cell comes before any other."""
    if type(left) is not types.CellType or type(right) is not types.CellType:
        return vm.give(vm.native_unhooked(callee, (left, right)), cont)
    held = [_contents(vm, cell) for cell in (left, right)]
    if any(each is MISSING for each in held):
        full = [types.CellType() if each is MISSING else types.CellType(0) for each in held]
        return vm.give(vm.native_unhooked(callee, (full[0], full[1])), cont)
    compare(vm, _SYMBOLS[callee.__name__], held[0], held[1], cont)


def _contents(vm: VM, cell: types.CellType) -> object:
    try:
        value = cell.cell_contents
    except ValueError:
        return MISSING
    return value.force() if type(value) is Box else value


suspending_rule(*[vars(types.CellType)[name] for name in _SYMBOLS])(_compare_cells)


@rule(sys.settrace, sys.setprofile)
def _watch(vm: VM, callee: Getter, function: object, /) -> None:
    reader = _READERS[id(callee)]
    if function is not None or reader() is not None:
        raise Break("SB008", f"sys.{callee.__name__}: frames of the program do not exist in the compiled function")
    vm.heap.guard_call(reader, None)
