"""Rules for weakref.proxy, gc and sizes.   gc.collect()  ->  an effect, in order with the others

In: a call whose outcome depends on which objects live.  Out: a proxy of an object made inside, which dies as in eager,
or a collection that the residual makes, where nobody reads how many objects it found.  Finalizers of the user may run
then, and see changes of the call: it makes none after the collection, or breaks.  A call breaks that reads weak
references from outside, and one that holds a weak reference to an object that no variable reaches: cycles of the trace
die with it, not at the collection.

A collection takes tuples and dicts of plain constants off the list of the collector.  Those that variables hold at
gc.collect() are noted, and gc.is_tracked() reads the note.
"""

from __future__ import annotations

import _weakref
import collections
import ctypes
import gc
import itertools
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break, Strategy
from stator.heap.outside_changes import anything_changed, anything_let_go, callback_of
from stator.heap.pure_readers import referent_of
from stator.heap.raw_access import instance_dict
from stator.heap.tracker import Box
from stator.host.value_kinds import is_a
from stator.interp.frame import Continuation, ExcState, Frame
from stator.interp.lookup import MISSING, find, flags_of
from stator.interp.machine import is_own
from stator.interp.mechanisms import has_changes
from stator.interp.mutation_check import ChangedState, changed_state
from stator.interp.noted_effects import PlainCall, note
from stator.interp.objects.weak_access import PROXIES, behind_proxy
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.library.python.finalizers import interpret_callback
from stator.library.python.weak_references import KEPT, WEAK
from stator.shapes.symbolic_values import SYMBOLIC, specialise

_SEEN = "a collection, whose finalizers of the user can see what was changed before"
_HAS_COLLECTOR = 1 << 14  # Py_TPFLAGS_HAVE_GC: of types whose objects own others
_EMPTY = types.CellType()
_ON_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_SIZED = (object, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, slice, range, collections.deque,
          collections.OrderedDict)
_SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_NOT_FOLLOWED = (types.ModuleType, types.CodeType, types.FrameType, Frame, FakeTensor, *SYMBOLIC, *_SUSPENDED)
_CLEAR = getattr(ctypes.pythonapi, "_PyWeakref_ClearRef", None)  # without the callback; in every Python so far
_WEAK_TYPES = (weakref.ref, weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)


def refuse_collections(vm: VM) -> None:
    """Break where a collection may change the weak references from outside that the call reads."""
    if vm.identity.collected is not None and not _is_as_collected(vm):
        raise Break("SB015", _SEEN, turn_off=Strategy.LATE_COLLECTIONS)
    if vm.identity.collects and any(is_a(each.original, _WEAK_TYPES) for each in vm.heap.trackers):
        raise Break("SB019", "gc.collect() in a call that reads weak references from outside", turn_off=WEAK)


@rule(weakref.ref.__call__)
def _referent(vm: VM, reference: Any, /) -> Any:
    """The stand-in of a reference refers to the stand-in of its object, whose life is guarded."""
    if vm.heap.is_opaque(reference):
        raise Break("SB019", f"a {type(reference).__name__}")
    referent = referent_of(reference)
    tracker = None if referent is None else vm.heap.tracker_of(referent)
    if tracker is not None and (anything_let_go(vm.heap) or not handed_values_are_held(vm, tracker.original)):
        raise Break("SB019", "a call of a weak reference after an object from outside was let go")
    is_kept = is_a(referent, KEPT) or type(referent) is FakeTensor
    if type(referent) is types.FunctionType and id(referent) not in vm.fresh:  # from outside, in a class or a module
        is_kept = bool(vm.classes.overlays) or anything_let_go(vm.heap)
    if tracker is None and is_kept and id(referent) not in in_variables(vm):
        kind = "Tensor" if type(referent) is FakeTensor else type(referent).__name__
        raise Break("SB019", f"a weak reference to a {kind} that was made and let go inside", whole_call=True)
    is_outside = is_a(referent, (type, types.FunctionType)) and id(referent) not in vm.fresh
    if tracker is None and referent is not None and not is_outside and _unreached(vm, [referent]):
        raise Break("SB019", "a weak reference to an object of the trace that only the trace holds", whole_call=True)
    return referent


def handed_values_are_held(vm: VM, original: object) -> bool:
    """Whether variables of the call still hold the object, or all that the entry was called with and may own it."""
    handed, held = vm.identity.handed, in_variables(vm)
    return id(original) in held or id(original) not in handed and all(
        number in held or not (instance_dict(raw) if is_a(raw, torch.Tensor) else type(raw).__flags__ & _HAS_COLLECTOR)
        for number, raw in handed.items())


def in_variables(vm: VM) -> set[int]:
    """Ids of the objects that variables of the call hold now; of outside objects, ids of the originals."""
    handled: ExcState | None = vm.exc_state
    found: list[object] = []
    while handled is not None:
        found.append(handled.value)
        handled = handled.previous
    frame = vm.frame
    while frame is not None:
        found += itertools.chain(frame.locals, frame.stack)
        frame = frame.caller()
    contents = (value.cell_contents if type(value) is types.CellType and value != _EMPTY else value for value in found)
    return {id(value.raw if type(value) is Box else vm.heap.original_of(value)) for value in contents}


@rule(weakref.finalize.__init__, weakref.finalize.__call__, weakref.finalize.detach, weakref.finalize.peek)
def _finalize(vm: VM, /, *args: object, **kwargs: object) -> None:
    # An object made inside dies with a variable of this call: no segment may hold it in between.
    raise Break("SB019", "weakref.finalize", whole_call=len(args) > 1 and vm.heap.tracker_of(args[1]) is None)


@rule(weakref.proxy)
def _proxy(vm: VM, value: object, callback: object = None, /) -> object:
    if vm.heap.tracker_of(value) is not None or is_a(value, KEPT) or type(value) is FakeTensor:
        raise Break("SB019", "weakref.proxy of an object from outside")
    if callback is not None:
        callback = interpret_callback(vm, callback)
    vm.identity.weakly.append(weakref.ref(value))
    return vm.native_unhooked(weakref.proxy, (value, callback))


@rule(type.__subclasses__)
def _subclasses(vm: VM, cls: type, /) -> list[type]:
    """Classes are cycles: before a collection, those of a class made inside are all there."""
    if id(cls) not in vm.fresh or vm.identity.collects:
        raise Break("SB019", "type.__subclasses__: the list shrinks when a class dies")
    return vm.native_unhooked(type.__subclasses__, (cls,))  # type: ignore[no-any-return]


@rule(gc.collect)
def _collect(vm: VM, generation: object = 2) -> None:
    frame = vm.running
    following = frame.unit.instructions[frame.ip]
    if is_own(frame) or following.opname != "POP_TOP" or type(generation) is not int:
        raise Break("SB019", "gc.collect: how many objects it found depends on when objects die")
    living = {id(found): found for each in vm.identity.weakly if (found := each()) is not None}
    dying = _unreached(vm, list(living.values()))
    del living
    if WEAK in vm.turned_off or dying and not _clear_references(vm, dying):
        raise Break("SB019", "gc.collect: weak references of the call depend on when objects die",
                    whole_call=bool(dying))  # no segment may hold an object that dies here
    vm.identity.collects = True
    untracked = [each for each in _collected_in_variables(vm) if _may_untrack(vm, each, 1)]
    vm.identity.untracked.update((id(each), each) for each in untracked)
    if vm.identity.collected is not None or has_changes(vm) or anything_changed(vm.heap):
        _keep_changes(vm)
    note(vm, PlainCall(gc.collect, (generation,), {}), True)


def _keep_changes(vm: VM) -> None:
    """Note what the call has changed before a collection: finalizers run behind all changes of the residual."""
    if vm.identity.collected is None and Strategy.LATE_COLLECTIONS not in vm.turned_off:
        vm.identity.collected = _changes(vm)
    if vm.identity.collected is None or anything_let_go(vm.heap) or not _is_as_collected(vm):
        raise Break("SB015", _SEEN)


def _is_as_collected(vm: VM) -> bool:
    assert vm.identity.collected is not None
    (before, *others), (now, *others_now) = vm.identity.collected, _changes(vm)
    return before is not None and now is not None and before.key == now.key and others == others_now


def _changes(vm: VM) -> tuple[ChangedState | None, list[object], list[int]]:
    """Of outside objects, of mechanisms, and of classes and context variables, whose values keep their ids."""
    held = [value for overlay in vm.classes.overlays.values() for value in overlay.values()] + vm.contexts.sets
    others = [each.fingerprint() for each in vm.mechanisms if each is not vm.effects]
    vm.heap.kept += held
    return changed_state(vm), others, [*map(id, held)]


def _collected_in_variables(vm: VM) -> Iterator[object]:
    """Tuples and dicts that variables hold, and those inside them."""
    todo: list[Any] = []
    frame = vm.frame
    while frame is not None:
        todo += [*frame.locals, *frame.stack]
        frame = frame.parent
    seen: set[int] = set()
    while todo:
        value = todo.pop()
        if type(value) in (tuple, dict, list) and id(value) not in seen and vm.heap.tracker_of(value) is None:
            seen.add(id(value))
            todo += gc.get_referents(value)
            yield value


def _clear_references(vm: VM, dying: list[object]) -> bool:
    """Clear the weak references to objects that only the trace holds, as their end does.   False: it cannot."""
    references = [each for value in dying for each in weakref.getweakrefs(value)]
    if _CLEAR is None or vm.depth > 1:  # C code in between may hold the object
        return False
    lost = _unreached(vm, references)
    callbacks = [(each, callback_of(each)) for each in references if not any(each is other for other in lost)]
    for each in references:
        _CLEAR(ctypes.py_object(each))
    for each, callback in callbacks:
        if callback is not None:
            vm.call_sync(vm.functions.callbacks.get(id(callback), callback), (each,))
    return True


def _unreached(vm: VM, wanted: list[object]) -> list[object]:
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


def _may_untrack(vm: VM, value: object, depth: int) -> bool:
    """Whether a collection stops to track a tuple or a dict; at a depth of 1, whatever the order in which it comes."""
    def stays(part: object) -> bool:
        if type(part) is not tuple:
            return _is_collected(part)
        untracked = id(part) in vm.identity.untracked or not gc.is_tracked(part)
        return not (untracked or depth > 1 and _may_untrack(vm, part, depth - 1))
    return type(value) in (tuple, dict) and not any(map(stays, gc.get_referents(value)))


def _is_collected(value: object) -> bool:
    """Whether the collector may track an object; types in C are not its own, and symbols stand for numbers."""
    if type(value) in SYMBOLIC or is_a(value, type) and not flags_of(value) & _ON_HEAP:  # type: ignore[arg-type]
        return False
    return bool(type(value).__flags__ & _HAS_COLLECTOR)


@rule(gc.is_tracked)
def _is_tracked(vm: VM, value: object, /) -> bool:
    if vm.heap.tracker_of(value) is not None and _is_collected(value):
        raise Break("SB013", f"gc.is_tracked of a {type(value).__name__} from outside")
    if id(value) in vm.identity.untracked and _may_untrack(vm, value, 1):
        return False
    if type(value) is dict and any(type(part) in SYMBOLIC for part in gc.get_referents(value)):
        raise Break("SB013", "gc.is_tracked of a dict of symbolic numbers")
    if vm.identity.collects and gc.is_tracked(value) and _may_untrack(vm, value, sys.getrecursionlimit()):
        raise Break("SB013", f"gc.is_tracked of a {type(value).__name__}: how many collections it has met")
    return gc.is_tracked(value)


@rule(sys.getsizeof)
def _size(vm: VM, value: object, default: object = MISSING, /) -> object:
    """Sizes of objects made inside, which have grown as in eager."""
    value = specialise(value, "sys.getsizeof") if type(value) in SYMBOLIC else value
    method = find(vm, type(value), "__sizeof__")
    known = any(method is vars(cls).get("__sizeof__") for cls in _SIZED) or type(method) is types.FunctionType
    if not known or vm.heap.tracker_of(value) is not None or is_a(value, str) and not str.isascii(value):  # type: ignore[arg-type]
        raise Break("SB013", f"sys.getsizeof of a {type(value).__name__}")
    return vm.native(sys.getsizeof, (value,) if default is MISSING else (value, default))


rule(weakref.ref.__init__)(lambda vm, /, *args, **kwargs: vm.native_unhooked(weakref.ref.__init__, args, kwargs))
# The referents are hashed and compared: their Python code is interpreted
_COMPARED = [getattr(weakref.ref, f"__{name}__") for name in ("hash", "eq", "ne", "lt", "le", "gt", "ge")]
rule(*_COMPARED, getattr(_weakref, "_remove_dead_weakref"))(
    lambda vm, callee, /, *args: vm.native(callee, args))


_callback_of = vars(weakref.ref)["__callback__"].__get__


@rule(_callback_of)
def _callback(vm: VM, reference: object, owner: object = None, /) -> object:
    found = vm.native_unhooked(_callback_of, (reference, owner))
    return vm.functions.callbacks.get(id(found), found)


@rule(weakref.getweakrefcount, weakref.getweakrefs)
def _references_of(vm: VM, callee: Callable[..., object], value: object, /) -> object:
    """References to an object made inside, without that of the trace."""
    if vm.heap.tracker_of(value) is not None or is_a(value, KEPT) or is_a(value, type) or type(value) is FakeTensor:
        raise Break("SB019", f"weakref.{callee.__name__}: depends on when objects die")
    own = [each for each in vm.identity.weakly if each() is value]
    vm.identity.weakly[:] = [each for each in vm.identity.weakly if each() is not value]
    was_known = bool(own)
    del own
    seen, dicts = vm.identity, vm.heap.dicts
    noted = [(table, number) for table in (seen.ids, seen.hashes, seen.shown, dicts.owners)
             for number, refer in table.items() if type(refer) is weakref.ref and refer() is value]
    for table, number in noted:
        del table[number]
    found = vm.native_unhooked(callee, (value,))
    for table, number in noted:
        table[number] = weakref.ref(value)
    if was_known:
        vm.identity.weakly.append(weakref.ref(value))
    return found


def _forwards(method: Callable[..., object], function: Callable[..., object], swapped: bool) -> None:
    @suspending_rule(method)
    def forward(vm: VM, cont: Continuation | None, /, *args: object) -> None:
        plain = [behind_proxy(vm, each) if type(each) in PROXIES else each for each in args]
        vm.call(function, tuple(reversed(plain) if swapped else plain), {}, cont)


_OPERATORS: dict[str, Callable[..., object]] = {
    **{f"__{name}__": getattr(operator, f"__{name}__") for name in """add sub mul truediv floordiv mod lshift rshift
       and or xor matmul pow iadd isub imul itruediv ifloordiv imod ilshift irshift iand ior ixor imatmul ipow neg pos
       abs invert index getitem setitem delitem contains eq ne lt le gt ge""".split()},
    "__bool__": bool, "__len__": len, "__int__": int, "__float__": float, "__str__": str, "__iter__": iter,
    "__divmod__": divmod, "__next__": next, "__reversed__": reversed}
for _kind in PROXIES:
    for _name, _method in vars(_kind).items():
        if _name in _OPERATORS:
            _forwards(_method, _OPERATORS[_name], False)
        elif _name.startswith("__r") and f"__{_name[3:]}" in _OPERATORS:
            _forwards(_method, _OPERATORS[f"__{_name[3:]}"], True)


@suspending_rule(weakref.CallableProxyType.__call__)
def _call_proxy(vm: VM, cont: Continuation | None, proxy: object, /, *args: object, **kwargs: object) -> None:
    vm.call(behind_proxy(vm, proxy), args, kwargs, cont)
