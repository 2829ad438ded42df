"""torch's shape environment, which may learn a number that only the graph knew.

In: a symbolic value whose number is wanted, by the program, by C code or by the rule of an operation.  Out: the number
where it follows from what a guard can promise (`settle`, see graph/known_values); else torch's own refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv


class Unknown:
    """The type of UNKNOWN: nobody can tell before the graph runs."""

    __slots__ = ()


UNKNOWN = Unknown()
_CLASSES: dict[type, Any] = {int: torch.SymInt, float: torch.SymFloat, bool: torch.SymBool}


def unknown(value: Any) -> Any:
    """The answer outside a trace."""
    return UNKNOWN


class TraceEnvironment(ShapeEnv):
    """The shape environment of one trace."""

    def __init__(self) -> None:
        super().__init__()
        self.settle: Callable[[Any], Any] = unknown

    def evaluate_sym_node(self, sym_node: Any, size_oblivious: bool = False, fallback_value: Any = None) -> Any:
        try:
            return super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)
        except GuardOnDataDependentSymNode:
            number = self.settle(_CLASSES[sym_node.pytype](sym_node))
            if number is UNKNOWN:
                raise
            return number
