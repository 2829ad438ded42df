"""Rules for caches of the standard library.   functools.cached_property, an lru_cache made inside the trace

A cached_property takes a lock around the first read, which no other thread can contend while tracing: here the
value is computed and stored without it.  A cache made inside the trace is used as it is; a cache from outside is
the user's, and what it wraps is interpreted.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from stator.breaks import Break
from stator.guards.guard import Kind, is_constant, same_constant, value_key
from stator.heap.changes import fingerprint
from stator.heap.raw_access import instance_dict
from stator.interp.assignment import writable_dict
from stator.interp.attributes import read_instance_dict
from stator.interp.calls import rule
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.lookup import MISSING
from stator.interp.symbols import specialise_deep
from stator.kinds import is_a
from stator.source import CallOf, Pinned


class KeepValue(Continuation):
    """The getter's value goes into the instance dict, then to whoever asked."""

    __slots__ = ("obj", "name", "cont")

    def __init__(self, obj: Any, name: str, cont: Any) -> None:
        self.obj, self.name, self.cont = obj, name, cont

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        writable_dict(vm, self.obj, self.name, MISSING)[self.name] = value
        vm.give(value, self.cont)


@rule(functools.cached_property.__get__)
def _cached_property(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    descriptor, obj = args[0], args[1]
    if obj is None:
        return vm.give(descriptor, cont)
    name = read_instance_dict(vm, descriptor, "attrname")
    if name is None:
        raise Raised(TypeError("Cannot use cached_property instance without calling __set_name__ on it."))
    if instance_dict(obj) is None:
        raise Raised(TypeError(f"No '__dict__' attribute on {type(obj).__name__!r} instance to cache {name!r} "
                               "property."))
    value = read_instance_dict(vm, obj, name)
    if value is not MISSING:
        return vm.give(value, cont)
    vm.call(read_instance_dict(vm, descriptor, "func"), (obj,), {}, KeepValue(obj, name, cont))


def _is_outside_cache(vm: Any, wrapper: Any) -> bool:
    return id(wrapper) in vm.heap.by_standin or id(wrapper) in vm.heap.sources or id(wrapper) not in vm.fresh


@rule(functools._lru_cache_wrapper)
def _make_cache(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    wrapper = vm.native_unhooked(functools._lru_cache_wrapper, args, kwargs)
    vm.fresh[id(wrapper)] = wrapper
    vm.give(wrapper, cont)


@rule(functools._lru_cache_wrapper.__call__)
def _call_cached(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    wrapper, *rest = args
    if _is_outside_cache(vm, wrapper):
        return _call_outside_cache(vm, wrapper, tuple(rest), kwargs, cont)
    for value in (*rest, *kwargs.values()):
        vm.heap.expose_deep(value)
    vm.give(vm.native(wrapper, tuple(rest), kwargs), cont)


class CachedValue(Continuation):
    """What an outside cache wraps has answered: it stands for the cache only if it was pure and gave a constant."""

    __slots__ = ("wrapper", "args", "key", "before", "effects", "cont")

    def __init__(self, vm: Any, wrapper: Any, args: tuple[Any, ...], key: Any, cont: Any) -> None:
        self.wrapper, self.args, self.key, self.cont = wrapper, args, key, cont
        self.before, self.effects = fingerprint(vm.heap), len(vm.effects)

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        if len(vm.effects) != self.effects or fingerprint(vm.heap) != self.before:
            raise Break("SB013", "a cached function that changes something: whether it runs depends on the cache")
        if not is_shared_value(value):
            raise Break("SB013", f"a cached {type(value).__name__}, which is one object for all callers")
        if self.wrapper.cache_info().currsize:  # what it keeps may be older than the facts it was made from
            kept = self.wrapper(*self.args)
            if not same_constant(kept, value):
                source = CallOf(Pinned(self.wrapper), tuple(map(Pinned, self.args)))
                vm.heap.guard(source, Kind.FRESH_CALL if is_constant(kept) else Kind.ID, kept)
                value = kept
        vm.heap.answers[self.key] = value
        vm.give(value, self.cont)


def is_shared_value(value: Any) -> bool:
    """Whether it makes no difference to have made the value anew."""
    return is_constant(value) or type(value) in (types.FunctionType, types.BuiltinFunctionType) or is_a(value, type)


def _call_outside_cache(vm: Any, wrapper: Any, args: tuple[Any, ...], kwargs: Any, cont: Any) -> None:
    """The cache is not filled while tracing: what it wraps is interpreted, once for each set of arguments."""
    if kwargs:
        raise Break("SB013", "keyword arguments of a cached function")
    args = specialise_deep(vm, args)  # they are hashed
    for value in args:
        if not is_constant(value) and vm.heap.tracker_of(value) is None and not is_a(value, (type, types.FunctionType)):
            raise Break("SB013", f"a cached function, called with a fresh {type(value).__name__}")
    key = ("cache", id(wrapper), tuple(value_key(value) for value in args))
    if key in vm.heap.answers:
        return vm.give(vm.heap.answers[key], cont)
    originals = tuple(vm.heap.original_of(value) for value in args)
    vm.call(wrapper.__wrapped__, args, {}, CachedValue(vm, wrapper, originals, key, cont))


def _cache_rule(function: Any, detail: str) -> Any:
    def run(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        if _is_outside_cache(vm, args[0]):
            raise Break("SB013", detail)
        vm.give(vm.native_unhooked(function, args, kwargs), cont)
    return run


for _name in ("cache_info", "cache_clear"):
    _method = getattr(functools._lru_cache_wrapper, _name)
    rule(_method)(_cache_rule(_method, f"functools._lru_cache_wrapper.{_name}: the cache is shared with calls made "
                                       "elsewhere"))


@rule(functools._lru_cache_wrapper.__get__)  # type: ignore[attr-defined]
def _bind_cache(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    wrapper, obj = args[0], args[1]
    vm.give(wrapper if obj is None else types.MethodType(wrapper, obj), cont)
