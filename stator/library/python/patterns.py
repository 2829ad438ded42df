"""Rules for re.   re.compile(text)  ->  the pattern; a function of the program that replaces matches is interpreted

In: a call of a function of `re`.  Out: its value.  Where CPython prints the pattern or warns of it, Python code of `re`
is interpreted.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import _lru_cache_wrapper

from stator.breaks import Break
from stator.code.intrinsics import COUNT_BY_PLACE
from stator.graph.state.quiet_logging import Heard
from stator.interp.frame import Continuation, Raised
from stator.interp.noted_effects import PlainCall, note
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.shapes.symbolic_values import DeferredText, unread
from stator.source import Pinned

# `re.compile` without its cache, interpreted: as many frames of `re`, which warnings count.
_NEW = """
def inner(pattern, flags):
    return compile(pattern, int(flags) if isinstance(flags, int) else flags)
def new(pattern, flags):
    return inner(pattern, flags)
"""
_namespace: dict[str, object] = {"__name__": "re", "compile": getattr(re, "_compiler").compile}
exec(compile(_NEW, re.__file__, "exec"), _namespace)
_TEMPLATE = int(getattr(re, "TEMPLATE", 0))  # until 3.12
_compile_new = _namespace["new"]  # called in interpreted code alone
_PUBLIC = {re.compile: (), re.match: ("string",), re.fullmatch: ("string",), re.search: ("string",),
           re.findall: ("string",), re.finditer: ("string",), re.split: ("string", "maxsplit"),
           re.sub: ("repl", "string", "count"), re.subn: ("repl", "string", "count")}


@rule(re.escape)
def _escape(vm: VM, pattern: object) -> object:
    vm.heap.expose_deep(pattern)
    return vm.native_unhooked(re.escape, (pattern,))


@suspending_rule(*_PUBLIC)
def _run_pattern(vm: VM, cont: Continuation | None, callee: Callable[..., object], /, pattern: object, *args: object,
                 **kwargs: object) -> None:
    """The pattern is compiled natively; a replacement may be a function of the program."""
    for value in (pattern, *args, *kwargs.values()):
        if type(value) is DeferredText:
            raise unread(value)
        vm.heap.expose_deep(value)
    names = (*_PUBLIC[callee], "flags")
    values = {**dict(zip(names, args, strict=False)), **kwargs}
    if len(args) + len(kwargs) != len(values):
        vm.native_unhooked(callee, (pattern, *args), kwargs)  # raises
    if len(args) >= len(_PUBLIC[callee]) and COUNT_BY_PLACE.get(callee):
        vm.call_sync(warnings.warn, (COUNT_BY_PLACE[callee], DeprecationWarning))
    compiled = _compiled(vm, pattern, values.pop("flags", 0))
    if callee is re.compile:
        return vm.give(compiled, cont)
    vm.call(getattr(compiled, callee.__name__), (), values, cont)


def _compiled(vm: VM, pattern: object, flags: object) -> object:
    """`re` keeps a cache of patterns; it prints or warns of one that is new, which is interpreted."""
    number = int(flags) if isinstance(flags, int) else 0
    key, known = (type(pattern), pattern, number), vm.caches.fills.setdefault(id(re.compile), [])
    if type(pattern) in (str, bytes):
        for kept, value in known:
            if kept == key:
                return value
        if number & re.DEBUG:
            return vm.call_sync(_compile_new, (pattern, flags))
    failed: Break | Raised | None = None
    with Heard() as heard:
        try:
            found = vm.native_unhooked(re.compile, (pattern, flags))
        except (Break, Raised) as error:
            failed = error
    if heard:  # so the cache did not have it
        for cache in _CACHES:
            cache.pop(key, None)
        if number & _TEMPLATE:  # of which `re` warns before it looks at the pattern
            raise Break("SB013", "a pattern with the flag TEMPLATE, of which re warns")
        vm.heap.guard_call(is_new, True, Pinned(pattern), Pinned(number))
        found = vm.call_sync(_compile_new, (pattern, flags))
        known.append((key, found))
        note(vm, PlainCall(keep_pattern, (pattern, number), {}), False)
    elif failed is not None:
        raise failed
    return found


_CACHES: list[dict[object, object]] = [getattr(re, name) for name in ("_cache", "_cache2") if hasattr(re, name)]


def is_new(pattern: object, flags: int) -> bool:
    """A pure reader for guards: whether `re` has to compile a pattern."""
    return not any((type(pattern), pattern, flags) in cache for cache in _CACHES)


def keep_pattern(pattern: str, flags: int) -> None:
    """Put a pattern into the cache of `re`, which has warned of it; called by the residual."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        re.compile(pattern, flags)


@rule(*[getattr(re, name) for name in ("_compile_repl", "_compile_template") if hasattr(re, name)])
def _private_cache(vm: VM, callee: _lru_cache_wrapper[object], /, *args: object) -> object:
    """Templates that `re` keeps, which nobody can observe."""
    with Heard() as heard:
        try:
            return vm.native_unhooked(callee, args)
        finally:
            if heard:
                callee.cache_clear()  # so that CPython warns at the break
                raise Break("SB013", f"a template that re warns of ({heard[0].message})")


@rule(re.purge)
def _purge(vm: VM) -> None:
    vm.caches.fills.pop(id(re.compile), None)
    vm.native_unhooked(re.purge, ())
    note(vm, PlainCall(re.purge, (), {}), False)
