"""Rules for re.   re.compile(text)  ->  the pattern; a function of the program that replaces matches is interpreted

In: a call of a function of `re`.  Out: its value, or a Break where CPython prints the pattern or warns of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from stator.breaks import Break
from stator.graph.state.quiet_logging import Heard
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.shapes.symbolic_values import DeferredText, unread


@rule(re.compile, re.escape, re.match, re.fullmatch, re.search, re.split, re.findall, re.finditer)
def _run_pattern(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`re` keeps a cache of compiled patterns, which nobody can observe."""
    for value in (*args, *kwargs.values()):
        if type(value) is DeferredText:
            raise unread(value)
    vm.heap.expose_deep(args)
    at = {re.compile: 1, re.split: 3}.get(callee, 2)
    return _with_pattern(vm, callee, args, kwargs, kwargs.get("flags", args[at] if len(args) > at else 0))


def _with_pattern(vm: VM, callee: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object],
                  flags: object) -> object:
    """Call a function of `re`; break where it prints or warns, which CPython does when it does not know the pattern."""
    if isinstance(flags, int) and flags & re.DEBUG:
        raise Break("SB015", "re.DEBUG, which prints the pattern")
    with Heard() as heard:
        try:
            return vm.native_unhooked(callee, args, kwargs)
        finally:
            if heard:
                re.purge()  # so that CPython warns at the break
                raise Break("SB013", f"a pattern that re warns of ({heard[0].message})")


@suspending_rule(re.sub, re.subn)
def _substitute(vm: VM, cont: Any, callee: Any, pattern: Any, *args: Any, **kwargs: Any) -> None:
    """The pattern is compiled natively; the replacement may be a function of the program."""
    values = {**dict(zip(("repl", "string", "count", "flags"), args, strict=False)), **kwargs}
    flags = values.pop("flags", 0)
    compiled = _with_pattern(vm, re.compile, (pattern, flags), {}, flags)
    vm.call(getattr(compiled, callee.__name__), (), values, cont)
