"""Rules for weakref.proxy and gc.collect.   gc.collect()  ->  an effect, in order with the others

In: a call whose outcome depends on which objects live.  Out: a proxy of an object made inside, which dies as in eager,
or a collection that the residual makes, where nobody reads how many objects it found.  Finalizers of the user may run
then: after a change that they could see, the call breaks.  So does a call that reads weak references from outside, or
has made some: cycles of the trace die with it, not at the collection.
"""

from __future__ import annotations

import gc
import weakref

from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.host.value_kinds import is_a
from stator.interp.machine import is_own
from stator.interp.noted_effects import PlainCall, note
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.python.weak_references import KEPT, WEAK

_WEAK_TYPES = (weakref.ref, weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)


def refuse_collections(vm: VM) -> None:
    """Break where a collection may change the weak references from outside that the call reads."""
    if vm.identity.collects and any(is_a(each.original, _WEAK_TYPES) for each in vm.heap.trackers):
        raise Break("SB019", "gc.collect() in a call that reads weak references from outside", turn_off=WEAK)


@rule(weakref.proxy)
def _proxy(vm: VM, value: object, callback: object = None, /) -> object:
    if callback is not None or vm.heap.tracker_of(value) is not None or is_a(value, KEPT) or type(value) is FakeTensor:
        raise Break("SB019", "weakref.proxy of an object from outside, or with a callback")
    vm.identity.refers_weakly = True
    return vm.native_unhooked(weakref.proxy, (value,))


@rule(gc.collect)
def _collect(vm: VM, generation: object = 2) -> None:
    frame = vm.running
    following = frame.unit.instructions[frame.ip]
    if is_own(frame) or following.opname != "POP_TOP" or type(generation) is not int:
        raise Break("SB019", "gc.collect: how many objects it found depends on when objects die")
    if vm.identity.refers_weakly or WEAK in vm.turned_off:  # objects in cycles die later in the trace
        raise Break("SB019", "gc.collect: weak references of the call depend on when objects die")
    vm.identity.collects = True
    note(vm, PlainCall(gc.collect, (generation,), {}), True)
