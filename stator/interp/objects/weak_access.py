"""weakref.proxy of objects made inside the trace.   proxy.x  ->  attribute x of the object behind it

In: a proxy.  Out: the object that it stands for.  A proxy of the trace is a real one to a real object, which dies where
the program lets go of it, as in eager.
"""

from __future__ import annotations

import ctypes
import gc
import types
import weakref
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.heap.tracker import Box
from stator.host.value_kinds import is_a
from stator.interp.frame import ExcState, Frame, Raised
from stator.interp.services import VM
from stator.shapes.symbolic_values import SYMBOLIC

PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
_SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_NOT_FOLLOWED = (types.ModuleType, types.CodeType, types.FrameType, Frame, FakeTensor, *SYMBOLIC, *_SUSPENDED)


def proxied(proxy: object) -> object:
    """The object behind a proxy, None where it died: the first field of the proxy."""
    return ctypes.py_object.from_address(id(proxy) + object.__basicsize__).value


def behind_proxy(vm: VM, proxy: object) -> object:
    """The object behind a proxy that the program has made."""
    if vm.heap.is_opaque(proxy) or vm.heap.tracker_of(proxy) is not None:
        raise Break("SB019", f"a {type(proxy).__name__} from outside")
    found = proxied(proxy)
    if found is None:
        raise Raised(ReferenceError("weakly-referenced object no longer exists"))
    if unreached(vm, [found]):
        raise Break("SB019", "a proxy of an object of the trace that only the trace holds", whole_call=True)
    return found


def unreached(vm: VM, wanted: list[object]) -> list[object]:
    """Those of the objects made inside that no variable of the call and no object from outside reaches."""
    missing = {id(each) for each in wanted if vm.heap.tracker_of(each) is None}
    todo: list[Any] = [tracker.standin for tracker in vm.heap.trackers] if missing else []
    todo += [value for scope in vm.heap.scopes.values() for value in scope.overlay.values()] if missing else []
    frame = vm.frame
    while frame is not None and missing:
        todo += [*frame.locals, *frame.stack, frame.names, frame.func]
        frame = frame.caller()
    handled: ExcState | None = vm.exc_state
    while handled is not None:
        todo.append(handled.value)
        handled = handled.previous
    seen: set[int] = set()
    while todo and missing:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        missing.discard(id(value))
        if type(value) is Box:
            todo += [value.value] if value.forced else ()
        elif (body := vm.generators.of(value) if type(value) in _SUSPENDED else None) is not None:
            todo += [*body.frame.locals, *body.frame.stack] if body.frame is not None else ()
        elif type(value) is types.FunctionType:
            todo += [value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__]
        elif not is_a(value, _NOT_FOLLOWED) and not (is_a(value, type) and id(value) not in vm.fresh):
            todo += gc.get_referents(value)
    return [each for each in wanted if id(each) in missing]
