"""Operators that must not run twice.   a call with a collective, or a custom operator  ->  the eager call is the call

In: an eager run.  Out: the first operator in it that somebody could see run a second time.  Operators of torch itself
can be undone and repeated; what a custom operator does in Python, and what another rank receives, cannot.
"""

from __future__ import annotations

import types
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from stator import marks
from stator.audit.reach import Reached
from stator.graph.mutation import is_repeatable_target


class Unrepeatable(TorchDispatchMode):
    """Watch the operators of a block, and keep the name of the first that must not run twice."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.found: str | None = None

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.found is None and not is_repeatable_target(func):
            self.found = str(func)
        return func(*args, **(kwargs or {}))


def whole_function(reached: dict[int, Reached]) -> str | None:
    """Name a function within reach that graphs hold whole: nobody knows what it does."""
    for each in reached.values():
        if type(each.value) is types.FunctionType and marks.allowed_in_graph(each.value):
            return f"{each.value.__qualname__}, which is allowed in graphs,"
    return None
