"""Rules for readers of what the process keeps: limits, modules.   sys.getrecursionlimit()  ->  1000

The answer is a constant of the trace; at every call the guard program asks the same reader again.  A module that is
made inside is the trace's own.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from stator.guards.guard import Kind
from stator.interp.frame import Raised
from stator.interp.objects.class_attributes import load_module_attr
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.source import CallOf, Pinned


@rule(sys.getrecursionlimit)
def _recursion_limit(vm: VM, args: Any, kwargs: Any) -> Any:
    """The trace runs under a limit of its own; the program sees the user's."""
    vm.heap.guard(CallOf(Pinned(sys.getrecursionlimit)), Kind.FRESH_CALL, vm.progress.recursion_limit)
    return vm.progress.recursion_limit


@rule(sys.get_int_max_str_digits)
def _digit_limit(vm: VM, args: Any, kwargs: Any) -> Any:
    limit = sys.get_int_max_str_digits()
    vm.heap.guard(CallOf(Pinned(sys.get_int_max_str_digits)), Kind.FRESH_CALL, limit)
    return limit


@rule(types.ModuleType)
def _new_module(vm: VM, args: Any, kwargs: Any) -> Any:
    """A module of the trace's own, which the residual makes anew."""
    made = vm.native_unhooked(types.ModuleType, args, kwargs)
    vm.fresh[id(made)] = made
    return made


@rule(types.ModuleType.__getattribute__)
def _module_getattribute(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) != 2 or kwargs or type(args[1]) is not str:
        raise Raised(TypeError("attribute name must be string"))
    load_module_attr(vm, args[0], args[1], cont, ask_class=False)
