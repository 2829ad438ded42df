"""Rules for caches and locks of the standard library.   functools.cached_property, lru_cache, with lock: ...

A cached_property is computed without its lock.  An outside cache is read without using it, and each call is made again
at write-back, so that hits, misses and the order of use are kept; a miss is interpreted, and its result handed over.
A lock is taken by the residual, without waiting, before anything is read; guards are checked under it.  Where it is not
free the call runs eagerly.
"""

from __future__ import annotations

import _thread
import enum
import functools
import gc
import re
import types
import typing
import weakref
from dataclasses import dataclass, replace
from typing import Any

import torch

from stator.breaks import Break
from stator.guards.guard import MISSING as ABSENT
from stator.guards.guard import Kind, is_constant
from stator.guards.lower import is_lookup_key
from stator.heap.outside_changes import fingerprint
from stator.heap.raw_access import instance_dict
from stator.host.value_kinds import is_a
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.lookup import MISSING
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.objects.assignment import writable_dict
from stator.interp.objects.attributes import read_instance_dict
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.native.rows_declare import ROWS, NativeClass
from stator.source import CallOf, Key, Pinned, Source


def _parts(wrapper: object) -> tuple[list[Any], dict[Any, Any], Any, Any]:
    """The (key, result, type) triples of a bounded cache, its dict, the mark between args and kwargs, its function.

    lru_cache_tp_traverse visits: the type, three for each link, the dict, the function, the mark, the type of links,
    the type of `cache_info()`, and what else there is.  Each copy of the module has a type of links of its own.
    """
    found = gc.get_referents(wrapper)
    end = 1 + max(i for i, part in enumerate(found) if type(part) is type and part.__qualname__ == "_lru_list_elem")
    links, (table, function, mark, element) = found[1:end - 4], found[end - 4:end]
    if type(table) is not dict or len(links) % 3 or any(part is not element for part in links[2::3]):
        raise TypeError("an lru_cache of an unknown build")
    return links, table, mark, function


def table_of(wrapper: object) -> dict[Any, Any]:
    """The dict behind a cache, the same for as long as the wrapper lives: results, or links where it is bounded."""
    return _parts(wrapper)[1]


def key_of(wrapper: object, args: tuple[Any, ...], kwargs: dict[str, Any], typed: bool) -> Any:
    if not typed and not kwargs:
        if len(args) == 1 and type(args[0]) in (str, int):
            return args[0]
        return args
    key = args
    if kwargs:
        key = (*key, _parts(wrapper)[2], *(part for pair in kwargs.items() for part in pair))
    if typed:
        key = (*key, *map(type, args), *map(type, kwargs.values()))
    return key


def kept_result(wrapper: object, key: object) -> Any:
    links, table, *_ = _parts(wrapper)
    if not links:
        return table.get(_unasked(key), ABSENT)
    if _unasked(key) not in table:
        return ABSENT
    return next((links[i + 1] for i in range(0, len(links), 3) if same_key(links[i], key)), ABSENT)


def kept_or(wrapper: object, key: object, otherwise: object) -> Any:
    found = kept_result(wrapper, key)
    return otherwise if found is ABSENT else found


def is_kept(wrapper: object, key: object) -> bool:
    return _unasked(key) in table_of(wrapper)


def outlasts(wrapper: Any, key: object, fills: int, used: int) -> bool:
    """Whether a key is still there after `fills` results of a call that has used `used` keys: the oldest go first."""
    info = wrapper.cache_info()
    if info.maxsize is None or info.currsize + fills <= info.maxsize:
        return True
    links = _parts(wrapper)[0]
    newer = next((number for number, link in enumerate(reversed(links[0::3])) if same_key(link, key)), info.maxsize)
    return newer + used < info.maxsize


class _Sought:
    """A key that is looked for: it compares itself with the keys of the table, so that theirs are not asked."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return same_key(self.key, other)


def _unasked(key: object) -> object:
    """A tuple's search would compare its items with those of another of the same hash."""
    return _Sought(key) if type(key) is tuple else key


def same_key(left: object, right: object) -> bool:
    if left is right:
        return True
    if type(left) is tuple and type(right) is tuple:
        return len(left) == len(right) and all(map(same_key, left, right))
    return is_constant(left) and is_constant(right) and left == right


_PURE = (NativeClass.PURE_SHELL, NativeClass.PURE)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
LOCK: type = type(_thread.allocate_lock())
RLOCK: type = _thread.RLock
_COUNT = re.compile(r" count=(\d+) ")


class KeepValue(Continuation):
    """Store the getter's value in the instance dict, then give it to the continuation."""

    __slots__ = ("obj", "name", "cont")

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        writable_dict(vm, self.obj, self.name, MISSING)[self.name] = value
        vm.give(value, self.cont)


@suspending_rule(functools.cached_property.__get__)
def _cached_property(vm: VM, cont: Continuation | None, self: object, instance: object, owner: object = None) -> None:
    if instance is None:
        return vm.give(self, cont)
    name = read_instance_dict(vm, self, "attrname")
    if name is None:
        raise Raised(TypeError("Cannot use cached_property instance without calling __set_name__ on it."))
    if instance_dict(instance) is None:
        raise Raised(TypeError(f"No '__dict__' attribute on {type(instance).__name__!r} instance to cache {name!r} "
                               "property."))
    value = read_instance_dict(vm, instance, name)
    if value is not MISSING:
        return vm.give(value, cont)
    vm.call(read_instance_dict(vm, self, "func"), (instance,), {}, KeepValue(instance, name, cont))


def _is_outside_cache(vm: VM, wrapper: object) -> bool:
    return id(wrapper) in vm.heap.by_standin or id(wrapper) in vm.heap.sources or id(wrapper) not in vm.fresh


@suspending_rule(functools._lru_cache_wrapper.__call__)
def _call_cached(vm: VM, cont: Continuation | None, wrapper: object, /, *args: object, **kwargs: object) -> None:
    if _is_outside_cache(vm, wrapper):
        return _call_outside_cache(vm, wrapper, args, kwargs, cont)
    _refuse_c_code(vm, wrapper)
    for value in (*args, *kwargs.values()):
        vm.heap.expose_deep(value)
    args, kwargs = _plain(vm, args, kwargs)
    vm.give(vm.native(wrapper, args, kwargs), cont)


def _refuse_c_code(vm: VM, wrapper: object) -> None:
    """A cache calls its function natively: Python code is interpreted then, C code would run as it is."""
    function = _parts(wrapper)[3]
    while type(function) is types.MethodType:
        function = function.__func__
    if type(function) is functools._lru_cache_wrapper and not _is_outside_cache(vm, function):
        return _refuse_c_code(vm, function)
    row = ROWS.get(id(function))
    if type(function) is not types.FunctionType and (row is None or row.cls not in _PURE):
        raise Break("SB013", "a cache around something else than a Python function")


@rule(functools._lru_cache_wrapper.cache_info, functools._lru_cache_wrapper.cache_clear)
def _ask_cache(vm: VM, callee: Any, wrapper: Any, /) -> Any:
    if _is_outside_cache(vm, wrapper):
        raise Break("SB013", f"functools._lru_cache_wrapper.{callee.__name__}: the cache is shared with calls made "
                             "elsewhere")
    return vm.native_unhooked(callee, (wrapper,))


def _plain(vm: VM, args: tuple[Any, ...], kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a cache with numbers for symbols: they are hashed."""
    return specialise_deep(vm, args), dict(zip(kwargs, specialise_deep(vm, tuple(kwargs.values())), strict=True))


@dataclass(frozen=True, eq=False)
class CacheUsed:
    """A call of an outside cache: a hit, or a miss whose result (or failure) came from the trace."""

    wrapper: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any
    key: object = None
    failed: bool = False


class CachedValue(Continuation):
    """The function behind an outside cache has returned or raised: write-back fills the cache."""

    __slots__ = ("call", "before", "effects", "cont")

    def __init__(self, vm: VM, call: CacheUsed, cont: object) -> None:
        self.call, self.cont = call, cont
        self.before, self.effects = fingerprint(vm.heap), len(vm.effects.noted)

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        wrapper, key = self.call.wrapper, self.call.key
        pure = len(vm.effects.noted) == self.effects and fingerprint(vm.heap) == self.before
        if pure and (is_constant(value) or is_a(value, type) or type(value) in _FUNCTIONS):  # a hit gives the same
            place = CallOf(Pinned(kept_or), (Pinned(wrapper), Pinned(key), Pinned(value)))
            vm.heap.guard(place, Kind.FRESH_CALL if is_constant(value) else Kind.ID, value)
        else:
            guard_absent(vm, wrapper, key)
        if wrapper.cache_info().maxsize != 0:
            vm.caches.fills.setdefault(id(wrapper), []).append((key, value))
        vm.effects.noted.append(replace(self.call, value=value))
        vm.give(value, self.cont)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        guard_absent(vm, self.call.wrapper, self.call.key)
        vm.effects.noted.append(replace(self.call, failed=True))
        return self.cont is not None and self.cont.raised(vm, frame, exc)


def guard_absent(vm: VM, wrapper: object, key: object) -> None:
    if is_lookup_key(key):
        vm.heap.guard(Pinned(table_of(wrapper)), Kind.ABSENT, key)
    else:
        vm.heap.guard_call(is_kept, False, Pinned(wrapper), Pinned(key))


def _call_outside_cache(vm: VM, wrapper: Any, args: tuple[Any, ...], kwargs: object, cont: object) -> None:
    """The cache is looked into, and used when the effects are written back; on a miss, what it wraps is interpreted."""
    args, kwargs = _plain(vm, args, kwargs)
    function, settings = wrapper.__wrapped__, wrapper.__dict__.get("cache_parameters")
    if type(function) is not types.FunctionType or settings is None:
        raise Break("SB013", "a cache around something else than a Python function")
    if function.__globals__ is typing.__dict__:  # reached through C code, as in `*Ts`; otherwise a rule of class_makers
        for value in (*args, *kwargs.values()):
            vm.heap.expose_deep(value)
        return vm.give(vm.native_unhooked(wrapper, args, kwargs), cont)
    originals = [_hashable(vm, value) for value in (*args, *kwargs.values())]
    vm.guard_identity(wrapper)
    named = dict(zip(kwargs, originals[len(args):], strict=True))
    key = key_of(wrapper, tuple(originals[:len(args)]), named, settings()["typed"])
    call = CacheUsed(wrapper, args, kwargs, None, key)
    fills = vm.caches.fills.get(id(wrapper), ())
    kept = kept_result(wrapper, key)
    if fills:
        _guard_age(vm, call, kept is not ABSENT, len(fills))
    for known, value in fills:
        if same_key(known, key):
            vm.effects.noted.append(replace(call, value=value))
            return vm.give(value, cont)
    if kept is ABSENT:
        return vm.call(function, args, kwargs, CachedValue(vm, call, cont))
    bounded = wrapper.cache_info().maxsize is not None
    source: Any = CallOf(Pinned(kept_result), (Pinned(wrapper), Pinned(key))) if bounded or not is_lookup_key(key) \
        else Key(Pinned(table_of(wrapper)), key)
    value = vm.heap.adopt(kept, source)
    vm.effects.noted.append(replace(call, value=value))
    vm.give(value, cont)


def _guard_age(vm: VM, call: CacheUsed, is_kept_before: bool, fills: int) -> None:
    """Results that this call has used, or finds, are still there: a full cache pushes out those unused for longest."""
    most = call.wrapper.cache_info().maxsize
    if most is None:
        return
    used: list[Any] = []
    for each in vm.effects.noted:
        if type(each) is CacheUsed and each.wrapper is call.wrapper and not each.failed:
            if not any(same_key(each.key, key) for key in used):
                used.append(each.key)
    is_used = any(same_key(call.key, key) for key in used)
    asks = is_kept_before and not is_used
    if len(used) > most or asks and not outlasts(call.wrapper, call.key, fills, len(used)):
        raise Break("SB013", "a full cache, from which a result of this call may have been pushed out")
    if asks:
        vm.heap.guard_call(outlasts, True, *map(Pinned, (call.wrapper, call.key, fills, len(used))))


def _hashable(vm: VM, value: object) -> Any:
    """The user's own object, hashed by C code alone; which object it is becomes a fact."""
    if is_constant(value) or is_a(value, type) or type(value) is types.FunctionType or (
            type(value) is re.Pattern) or (
            type(value) is weakref.ref and vm.heap.tracker_of(value) is None and is_a(value(), type)):
        return value
    if type(value) is tuple and vm.heap.tracker_of(value) is None:
        return tuple([_hashable(vm, item) for item in value])
    if _is_annotation(vm, value):
        return value
    if vm.heap.tracker_of(value) is None and not is_a(value, enum.Enum):
        raise Break("SB013", f"a cached function, called with a fresh {type(value).__name__}")
    original = vm.guard_identity(value)
    if not is_lookup_key(original) and not is_a(original, torch.Tensor):
        raise Break("SB013", f"a cached function, called with a {type(original).__name__}, which hashes itself")
    return original


def _is_annotation(vm: VM, value: object) -> bool:
    """Whether it is made by typing, of classes and constants alone: no code of the program hashes or compares it."""
    if type(value) is tuple and vm.heap.tracker_of(value) is None:
        return all([_is_annotation(vm, part) for part in value])
    if is_a(value, type):
        return type(value).__hash__ is type.__hash__ and type(value).__eq__ is type.__eq__
    if type(value).__module__ != "typing":
        return is_constant(value)
    if type(value).__hash__ is object.__hash__:
        return True
    return all([_is_annotation(vm, part) for part in (instance_dict(value) or {}).values()])


@rule(functools._lru_cache_wrapper.__get__)  # type: ignore[attr-defined]
def _bind_cache(vm: VM, wrapper: Any, obj: Any, owner: object = None, /) -> Any:
    return wrapper if obj is None else types.MethodType(wrapper, obj)


@dataclass
class LockState:
    """How the program has used one outside lock: `depth` counts what it holds of it now."""

    lock: Any
    source: Source
    taken: bool  # by the residual, before the call; else it was held already
    start: int  # what the residual holds of it when it runs
    depth: int


def held_count(lock: Any) -> int:
    """A pure reader for guards: how often a lock is taken; a reentrant one, by this thread."""
    if type(lock) is not RLOCK:
        return int(lock.locked())
    found = _COUNT.search(repr(lock)) if getattr(lock, "_is_owned")() else None  # nothing else tells
    return 0 if found is None else int(found[1])


def _methods(names: str) -> list[Any]:
    return [cls.__dict__[name] for cls in (LOCK, RLOCK) for name in names.split() if name in cls.__dict__]


@rule(*_methods("acquire acquire_lock __enter__"))
def _acquire(vm: VM, callee: Any, lock: Any, /, *options: Any, **kwargs: Any) -> bool:
    if id(lock) in vm.fresh:
        if type(lock) is LOCK and getattr(lock, "locked")():
            raise Break("SB018", "a lock that is taken twice")
        return vm.native_unhooked(callee, (lock, *options), kwargs)
    if any(type(value) not in (bool, int, float) for value in (*options, *kwargs.values())) \
            or len(options) > 2 or set(kwargs) - {"blocking", "timeout"}:
        raise Break("SB018", "a lock with unusual arguments")
    state = vm.locks.used.get(id(lock))
    if state is not None:
        if state.depth and type(lock) is LOCK:
            if not (options[0] if options else kwargs.get("blocking", True)):
                return False
            raise Break("SB018", "a lock that is taken twice, which waits for ever")
        state.depth += 1
        return True
    source = vm.heap.source_of(lock)
    if vm.locks.answers.get(source):
        raise Break("SB018", "a lock that was seen taken")
    if vm.effects.watched:
        raise Break("SB018", "a lock that is taken after output through the user's own code, which may take it too")
    vm.locks.used[id(lock)] = LockState(lock, source, True, 1, 1)
    vm.heap.note_handled(lock)
    return True


@rule(*_methods("release release_lock __exit__"))
def _release(vm: VM, callee: Any, lock: Any, /, *error: Any, **kwargs: Any) -> Any:
    if id(lock) in vm.fresh:
        return vm.native_unhooked(callee, (lock, *error), kwargs)
    state = vm.locks.used.get(id(lock))
    count = held_count(lock) if state is None else state.depth
    if not count:
        raise Break("SB018", "the release of a lock that is not held")
    if state is None:
        source = vm.heap.source_of(lock)
        vm.heap.guard_call(held_count, count, source)
        state = vm.locks.used[id(lock)] = LockState(lock, source, False, count, count)
        vm.heap.note_handled(lock)
    state.depth -= 1
    return None


@rule(*_methods("locked locked_lock _is_owned"))
def _is_held(vm: VM, callee: Any, lock: Any, /) -> bool:
    if id(lock) in vm.fresh:
        return vm.native_unhooked(callee, (lock,))
    state = vm.locks.used.get(id(lock))
    if state is not None:
        return state.depth > 0
    source, count = vm.heap.source_of(lock), held_count(lock)
    vm.heap.guard_call(held_count, count, source)
    vm.locks.answers[source] = count
    return count > 0
