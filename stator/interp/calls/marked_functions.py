"""What the user has said of a function.   stator.disable, allow_in_graph, substitute  ->  how it is called"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from stator.breaks import Break
from stator.settings import marks, torch_marks


def refuse_disabled(fn: Callable[..., Any]) -> None:
    """Break at a function or class that the user has marked with stator.disable, or torch's disallow_in_graph."""
    mark = marks.disabled_mark(fn)
    if mark is not None:
        reason = f": {mark.reason}" if mark.reason else ""
        raise Break("SB010", f"{fn.__qualname__} is disabled{reason}", untouched=True)
    refuse_disallowed(fn)


def refuse_disallowed(fn: Callable[..., Any]) -> None:
    """Break at what the user has marked with torch's disallow_in_graph; that may be an operation."""
    if torch_marks.is_disallowed(fn):
        raise Break("SB010", f"{fn.__name__} is not allowed in graphs", untouched=True)


def is_marked(fn: Callable[..., Any]) -> bool:
    if type(fn) is types.FunctionType and marks.is_unmarked(fn):
        return False
    return marks.is_disabled(fn) or marks.substitute(fn) is not None or marks.allowed_in_graph(fn) \
        or marks.is_constant_result(fn) or torch_marks.is_torch_compiled(fn) \
        or torch_marks.is_disallowed(fn)
