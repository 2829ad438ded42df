"""Rules for weak references made inside the trace.   weakref.ref(obj)  ->  a real reference to the stand-in

A stand-in lives as long as the trace: where the program has let go of an outside object, to read the reference breaks.
So does a callback of the program.
"""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break, Strategy
from stator.heap.outside_changes import anything_let_go
from stator.host.value_kinds import is_a
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.python.finalizers import interpret_callback, is_of_program
from stator.shapes.symbolic_values import specialise

WEAK = Strategy.WEAK_COLLECTIONS
# Made inside, they live as long as the trace, which looks at them again when their effects are written.
KEPT = (types.FunctionType, type(functools.lru_cache(len)), torch.nn.Module)


def _check(vm: VM, args: Any) -> None:
    callback = args[-1] if len(args) > 1 else None
    if type(args[0]) is FakeTensor and callback is not None and vm.heap.tracker_of(args[0]) is None:
        raise Break("SB019", "a weak reference with a callback to a tensor of the graph", whole_call=True)
    if vm.heap.is_opaque(args[0]) and not is_a(args[0], (type, types.FunctionType)):
        raise Break("SB019", f"a weak reference to a {type(args[0]).__name__} from outside")
    if is_of_program(callback) and (vm.heap.tracker_of(args[0]) is not None or is_a(args[0], KEPT)):
        raise Break("SB019", "a weak reference with a callback", whole_call=vm.heap.tracker_of(args[0]) is None)
    if callback is not None and vm.heap.tracker_of(args[0]) is not None:
        if WEAK in vm.turned_off:
            raise Break("SB019", "a weak reference with a callback, to an object from outside that may be let go")
        vm.identity.tells_of_deaths = True


def require_awaited(vm: VM) -> None:
    if vm.generators.unawaited or vm.generators.unbegun:
        raise Break("SB019", "a coroutine that nothing awaits: CPython warns where it dies", whole_call=True)


def refuse_untold_deaths(vm: VM) -> None:
    """Refuse deaths that are seen: of coroutines, and of stand-ins, which collections of weak references count."""
    require_awaited(vm)
    if vm.identity.tells_of_deaths and anything_let_go(vm.heap):
        raise Break("SB019", "an object from outside is let go that a collection refers to weakly", turn_off=WEAK)


@rule(weakref.ref, weakref.ref.__new__)
def _ref(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    args = tuple(map(specialise, args))  # a symbol can be referred to, a number cannot
    if given := args[:2] if callee is weakref.ref else args[1:3]:
        _check(vm, given)
        if is_of_program(given[-1]) and len(given) > 1:
            args = (*args[:-1], interpret_callback(vm, args[-1]))
    made = vm.native_unhooked(callee, args, kwargs)
    vm.identity.weakly.append(weakref.ref(given[0]))
    return made
