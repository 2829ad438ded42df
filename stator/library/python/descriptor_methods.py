"""Rules for methods of C descriptors, called by hand.   str.upper.__get__(text), slot.__set__(obj, 1)

In: a descriptor written in C and an object.  Out: the bound method, or the assignment that the descriptor stands for.
sys.settrace(None) and sys.setprofile(None) leave settings as they are, where there is no tracing function.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

from stator.breaks import Break
from stator.host.value_kinds import is_a
from stator.interp.frame import Continuation
from stator.interp.lookup import MISSING
from stator.interp.objects.assignment import GiveNone, set_descriptor
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM

Getter = Callable[..., object]
Member = types.GetSetDescriptorType | types.MemberDescriptorType
_MEMBERS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_READERS = {id(sys.settrace): sys.gettrace, id(sys.setprofile): sys.getprofile}


@rule(types.MethodDescriptorType.__get__, types.WrapperDescriptorType.__get__, types.ClassMethodDescriptorType.__get__,
      vars(super)["__get__"])
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


@rule(sys.settrace, sys.setprofile)
def _watch(vm: VM, callee: Getter, function: object, /) -> None:
    reader = _READERS[id(callee)]
    if function is not None or reader() is not None:
        raise Break("SB008", f"sys.{callee.__name__}: frames of the program do not exist in the compiled function")
    vm.heap.guard_call(reader, None)
