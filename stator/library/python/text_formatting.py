"""Rules for str.format and re.   "{0.name}".format(obj)  ->  attributes are read under guards, then formatted

A replacement field may read attributes and items; C code would read them from the stand-in itself.  Such a format is
done by `string.Formatter`, the same algorithm in Python, which is interpreted.
"""

from __future__ import annotations

import _string
import itertools
import re
import string
from collections.abc import Callable, Iterator
from typing import Any

from stator.breaks import Break
from stator.graph.state.quiet_logging import Heard
from stator.host.value_kinds import is_a
from stator.interp.frame import Continuation
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.shapes.symbolic_values import DeferredText, unread


def _reads_inside(text: str) -> bool:
    """Whether a replacement field (or one inside its format) names an attribute or an item."""
    for _, field, spec, _ in _string.formatter_parser(text):
        if field and ("." in field or "[" in field) or spec and _reads_inside(spec):
            return True
    return False


def _number_fields(text: str, numbers: Iterator[int]) -> str:
    """Give each field without a name its number: string.Formatter counts those alone that are empty."""
    parts: list[str] = []
    for literal, field, spec, conversion in _string.formatter_parser(text):
        parts.append(literal.replace("{", "{{").replace("}", "}}"))
        if field is None:
            continue
        if field == "" or field[0] in ".[":
            field = f"{next(numbers)}{field}"
        elif field[0].isdigit():
            raise Break("SB011", "str.format with fields of which some are numbered")
        shown = f"!{conversion}" if conversion else ""
        parts.append(f"{{{field}{shown}:{_number_fields(spec, numbers)}}}")
    return "".join(parts)


def _counts_inside(text: str) -> bool:
    """Whether a replacement field without a name reads an attribute or an item of its argument."""
    return any(field and field[0] in ".[" or spec and _counts_inside(spec)
               for _, field, spec, _ in _string.formatter_parser(text))


@suspending_rule(str.format)
def _format(vm: VM, cont: Continuation | None, text: object, /, *args: object, **kwargs: object) -> None:
    if type(text) is not str or not vm.native_unhooked(_reads_inside, (text,)):
        return vm.call_listed(str.format, str.format, None, (text, *args), kwargs, cont)
    if _counts_inside(text):
        text = _number_fields(text, itertools.count())
    vm.call(string.Formatter.vformat, (string.Formatter(), text, args, kwargs), {}, cont)


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
    if is_a(flags, int) and flags & re.DEBUG:  # type: ignore[operator]
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
