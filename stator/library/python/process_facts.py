"""Rules for readers of what the process keeps: limits, modules.   sys.getrecursionlimit()  ->  1000

The answer is a constant of the trace; at every call the guard program asks the same reader again.  A module that is
made inside is the trace's own, and so are caches and locks.
"""

from __future__ import annotations

import _thread
import functools
import sys
import types
from typing import Any

from stator.guards.guard import Kind
from stator.interp.frame import Raised
from stator.interp.objects.class_attributes import load_module_attr
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.source import CallOf, Pinned


@rule(sys.getrecursionlimit)
def _recursion_limit(vm: VM) -> int:
    """The trace runs under a limit of its own; the program sees the user's."""
    vm.heap.guard(CallOf(Pinned(sys.getrecursionlimit)), Kind.FRESH_CALL, vm.progress.recursion_limit)
    return vm.progress.recursion_limit


@rule(types.ModuleType, functools._lru_cache_wrapper, _thread.allocate_lock, _thread.allocate, _thread.RLock)
def _make(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A module, cache or lock of the trace's own, which the residual makes anew."""
    made = vm.native_unhooked(callee, args, kwargs)
    vm.fresh[id(made)] = made
    return made


@suspending_rule(types.ModuleType.__getattribute__)
def _module_getattribute(vm: VM, cont: Any, module: Any, name: Any, /) -> None:
    if type(name) is not str:
        raise Raised(TypeError("attribute name must be string"))
    load_module_attr(vm, module, name, cont, ask_class=False)
