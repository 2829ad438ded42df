"""Finalizers of classes made inside.   class A: def __del__(self): ...   ->   interpreted where an instance dies

In: the namespace of a class.  Out: the same, with a `__del__` that interprets the one of the program: CPython calls it
when the last reference to an instance goes, in the middle of an instruction.  What a residual makes of the class has
the original.  An instance that is still there at the end, and a finalizer that raises, run the call eagerly: instances
that the residual makes would die at other times, and CPython prints the error.  The same holds for callbacks of weak
references to objects made inside.
"""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable

from stator.breaks import Break
from stator.heap.outside_changes import callback_of
from stator.interp.frame import Bug, Raised
from stator.interp.generators.generators import raise_pending
from stator.interp.vm import VM

_CALLED_LATER = "a weak reference with a callback outlives the call with its object, or its callback raises"
_LATER = "an instance of a class with a finalizer (__del__) outlives the call, or its finalizer raises"


def interpret_finalizer(vm: VM, namespace: dict[object, object]) -> None:
    """Put a function of ours in the place of `__del__`."""
    original = namespace.get("__del__")
    if type(original) is not types.FunctionType:
        return

    def __del__(self: object) -> None:
        if vm.generators.live:
            _end(vm, original, self, _LATER)

    vm.functions.callbacks[id(__del__)] = original
    vm.fresh[id(__del__)] = __del__
    namespace["__del__"] = __del__


def is_of_program(callback: object) -> bool:
    """Whether a callback is not one of the library, which keep collections."""
    module = getattr(callback, "__module__", None)
    return callback is not None and module not in ("weakref", "_weakrefset", "functools")


def interpret_callback(vm: VM, callback: object) -> object:
    """A function of ours for a callback of the program, called where the referent dies."""
    def called(reference: object) -> None:
        if vm.generators.live:
            _end(vm, callback, reference, _CALLED_LATER)

    vm.functions.callbacks[id(called)] = callback
    vm.fresh[id(called)] = called
    return called


def _call(finalizer: Callable[[object], object], instance: object) -> None:
    """The frame in which C code, called at the death of an object, runs."""
    finalizer(instance)


def _end(vm: VM, finalizer: object, instance: object, later: str) -> None:
    try:
        vm.call_sync(_call, (finalizer, instance))
    except Raised:
        vm.pending = Break("SB019", later, whole_call=True)
    except (Break, Bug):  # pending: whoever has dropped the instance would not hear of it
        pass
    if vm.pending is not None:
        raise_pending(vm)


def refuse_instances(vm: VM) -> None:
    """Break at the end of a call where an instance is left."""
    for cls in vm.classes.finalized:
        if any(type(each) is cls for each in gc.get_referrers(cls)):
            raise Break("SB019", _LATER, whole_call=True)
    for reference in vm.identity.weakly:
        referent = reference()
        if referent is not None and any(id(callback_of(each)) in vm.functions.callbacks
                                        for each in weakref.getweakrefs(referent)):
            raise Break("SB019", _CALLED_LATER, whole_call=True)
