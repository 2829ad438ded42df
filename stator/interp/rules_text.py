"""Rules for str.format.   "{0.name}".format(obj)  ->  the attribute is read by the attribute rules, then formatted

A replacement field may read attributes and items; C code would read them from the stand-in itself.  Such a format is
done by `string.Formatter`, the same algorithm in Python, which is interpreted.
"""

from __future__ import annotations

import _string
import string
from typing import Any

from stator.interp.rule_registry import rule


def _reads_inside(text: str) -> bool:
    """Whether a replacement field (or one inside its format) names an attribute or an item."""
    for _, field, spec, _ in _string.formatter_parser(text):
        if field and ("." in field or "[" in field) or spec and _reads_inside(spec):
            return True
    return False


@rule(str.format)
def _format(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    text = args[0]
    if type(text) is str and vm.native_unhooked(_reads_inside, (text,)):
        return vm.call(string.Formatter.vformat, (string.Formatter(), text, tuple(args[1:]), kwargs), {}, cont)
    vm.call_listed(str.format, str.format, None, args, kwargs, cont)
