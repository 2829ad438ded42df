"""Operators that must not run twice.   a call with a collective, or a custom operator  ->  the eager call is the call

In: an eager run.  Out: the first operator in it that somebody could see run a second time.  Operators of torch itself
can be undone and repeated; what a custom operator does in Python, and what another rank receives, cannot.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from stator.audit.reach import Reached
from stator.graph.analysis.mutation import is_repeatable, is_repeatable_target
from stator.settings import marks


class Unrepeatable(TorchDispatchMode):
    """Watch the operators of a block, and keep the name of the first that must not run twice."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.found: str | None = None

    def __torch_dispatch__(self, func: Callable[..., Any], kinds: object, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        if self.found is None and not is_repeatable_target(func):
            self.found = str(func)
        return func(*args, **(kwargs or {}))


def reaches_whole_function(reached: dict[int, Reached]) -> bool:
    """Whether there is a function that graphs hold whole: no operator tells what it does."""
    return any(type(each.value) is types.FunctionType and marks.allowed_in_graph(each.value)
               for each in reached.values())


def unrepeatable_node(tag: Any) -> str:
    """Name what a captured graph calls and must not run twice; empty where there is no such call."""
    graph = None if tag.residual is None else tag.residual.graph
    for node in () if graph is None else graph.graph.nodes:
        if not is_repeatable(node):
            return str(getattr(node.target, "__qualname__", node.target))
    return ""
