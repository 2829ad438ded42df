"""Rules for str.format and re.   "{0.name}".format(obj)  ->  attributes are read under guards, then formatted

A replacement field may read attributes and items; C code would read them from the stand-in itself.  Such a format is
done by `string.Formatter`, the same algorithm in Python, which is interpreted.
"""

from __future__ import annotations

import _string
import itertools
import re
import string
from collections.abc import Iterator
from typing import Any

from stator.breaks import Break
from stator.interp.rule_registry import rule
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


@rule(str.format)
def _format(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    text = args[0]
    if type(text) is str and vm.native_unhooked(_reads_inside, (text,)):
        if _counts_inside(text):
            text = _number_fields(text, itertools.count())
        return vm.call(string.Formatter.vformat, (string.Formatter(), text, tuple(args[1:]), kwargs), {}, cont)
    vm.call_listed(str.format, str.format, None, args, kwargs, cont)


# ---------------------------------------------------------------------- re: functions around an inner cache


def _native_rule(function: Any) -> Any:
    def run(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        """`re` keeps a cache of compiled patterns, which nobody can observe."""
        for value in (*args, *kwargs.values()):
            if type(value) is DeferredText:
                raise unread(value)
        vm.heap.expose_deep(args)
        vm.give(vm.native_unhooked(function, args, kwargs), cont)
    return run


def _substitute_rule(method: str) -> Any:
    def substitute(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        """The pattern is compiled natively; the replacement may be a function of the program."""
        values = {**dict(zip(("pattern", "repl", "string", "count", "flags"), args, strict=False)), **kwargs}
        pattern = vm.native_unhooked(re.compile, (values.pop("pattern"), values.pop("flags", 0)))
        vm.call(getattr(pattern, method), (), values, cont)
    return substitute


rule(re.sub)(_substitute_rule("sub"))


rule(re.subn)(_substitute_rule("subn"))


for _of_re in (re.compile, re.escape, re.match, re.fullmatch, re.search, re.split, re.findall, re.finditer):
    rule(_of_re)(_native_rule(_of_re))
