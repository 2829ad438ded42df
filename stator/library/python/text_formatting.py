"""Rules for str.format.   "{0.name}".format(obj)  ->  attributes are read under guards, then formatted

A replacement field may read attributes and items; C code would read them from the stand-in itself.  Such a format is
done by `string.Formatter`, the same algorithm in Python, which is interpreted.
"""

from __future__ import annotations

import _string
import itertools
import string
from collections.abc import Iterator

from stator.breaks import Break
from stator.interp.frame import Continuation
from stator.interp.rule_registry import suspending_rule
from stator.interp.vm import VM


def _reads_inside(text: str) -> bool:
    """Whether a replacement field (or one inside its format) names an attribute or an item."""
    return any(field and ("." in field or "[" in field) or spec and _reads_inside(spec)
               for _, field, spec, _ in _string.formatter_parser(text))


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
