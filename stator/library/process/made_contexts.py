"""Rules for contexts made inside.   Context().run(f, x)  ->  f is interpreted while the thread is in that context

In: a contextvars.Context that the trace has made, or a copy of such a one.  Out: C code reads and changes it as in
eager; nobody outside the trace has it.  A break inside f is a break at run().  Contexts from outside, and copies of
the context of the caller, break.
"""

from __future__ import annotations

import contextvars
import ctypes
import types
from collections.abc import Callable

from stator.breaks import Break
from stator.interp.rule_registry import rule
from stator.interp.vm import VM

_C_CODE = (types.MethodDescriptorType, types.WrapperDescriptorType)
_METHODS = [value for name, value in vars(contextvars.Context).items()
            if type(value) in _C_CODE and name not in ("run", "__getattribute__", "__new__")]
_enter, _leave = ctypes.pythonapi.PyContext_Enter, ctypes.pythonapi.PyContext_Exit
_enter.argtypes = _leave.argtypes = [ctypes.py_object]


@rule(contextvars.Context)
def _make(vm: VM, /, *args: object, **kwargs: object) -> object:
    return vm.native_unhooked(contextvars.Context, args, kwargs)


@rule(*_METHODS)
def _call_method(vm: VM, callee: Callable[..., object], context: object, /, *args: object) -> object:
    if any(vm.heap.tracker_of(each) is not None for each in (context, *args) if type(each) is contextvars.Context):
        raise Break("SB013", f"contextvars.Context.{callee.__name__} of a context from outside")
    return vm.native(callee, (context, *(vm.heap.original_of(each) if type(each) is contextvars.ContextVar else each
                                         for each in args)))


@rule(contextvars.Context.run)
def _run(vm: VM, context: contextvars.Context, function: Callable[..., object], /, *args: object,
         **kwargs: object) -> object:
    if vm.heap.tracker_of(context) is not None:
        raise Break("SB013", "contextvars.Context.run of a context from outside")
    vm.native_unhooked(_enter, (context,))
    vm.contexts.entered.append(context)
    try:
        return vm.call_sync(function, args, kwargs)
    finally:
        vm.contexts.entered.pop()
        _leave(context)
