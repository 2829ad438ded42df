"""Finalizers of classes made inside.   class A: def __del__(self): ...   ->   interpreted where an instance dies

In: the namespace of a class.  Out: the same, with a `__del__` that interprets the one of the program: CPython calls it
when the last reference to an instance goes, in the middle of an instruction.  What a residual makes of the class has
the original.  An instance that is still there at the end, and a finalizer that raises, run the call eagerly: instances
that the residual makes would die at other times, and CPython prints the error.
"""

from __future__ import annotations

import gc
import types

from stator.breaks import Break
from stator.interp.frame import Bug, Raised
from stator.interp.generators.generators import raise_pending
from stator.interp.vm import VM

_LATER = "an instance of a class with a finalizer (__del__) outlives the call, or its finalizer raises"


def interpret_finalizer(vm: VM, namespace: dict[object, object]) -> None:
    """Put a function of ours in the place of `__del__`."""
    original = namespace.get("__del__")
    if type(original) is not types.FunctionType:
        return

    def __del__(self: object) -> None:
        if vm.generators.live:
            _end(vm, original, self)

    vm.functions.callbacks[id(__del__)] = original
    vm.fresh[id(__del__)] = __del__
    namespace["__del__"] = __del__


def _end(vm: VM, finalizer: types.FunctionType, instance: object) -> None:
    try:
        vm.call_sync(finalizer, (instance,))
    except Raised:
        vm.pending = Break("SB019", _LATER, whole_call=True)
    except (Break, Bug):  # pending: whoever has dropped the instance would not hear of it
        pass
    if vm.pending is not None:
        raise_pending(vm)


def refuse_instances(vm: VM) -> None:
    """Break at the end of a call where an instance is left."""
    for cls in vm.classes.finalized:
        if any(type(each) is cls for each in gc.get_referrers(cls)):
            raise Break("SB019", _LATER, whole_call=True)
