"""torch's shape environment, which may learn a number that only the graph knew.

In: a symbolic value whose number is wanted, by the program, by C code or by the rule of an operation.  Out: the number
where it follows from what a guard can promise (`settle`, see graph/known_values); else torch's own refusal. A compiler
that asks gets the refusal only: most have a way that does not need the number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import sympy
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
        self._any_kernel = False

    @contextlib.contextmanager
    def any_kernel(self) -> Iterator[None]:
        """While torch chooses among kernels that compute the same: a size that nobody knows is not taken for 0.

        Rules of attention ask, to send empty operands another way; compilers ask, for shortcuts. Newer versions of
        torch answer so themselves. What is computed of an empty operand stays the same.
        """
        before, self._any_kernel = self._any_kernel, True
        try:
            yield
        finally:
            self._any_kernel = before

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """While a backend has the graph: its questions decide how to compute, and add no guard to what is computed."""
        before, self.settle = self.settle, unknown
        try:
            with self.any_kernel():
                yield
        finally:
            self.settle = before

    def evaluate_sym_node(self, sym_node: Any, size_oblivious: bool = False, fallback_value: Any = None) -> Any:
        try:
            return super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)
        except GuardOnDataDependentSymNode:
            if self._any_kernel and asks_whether_empty(sym_node._expr):
                return type(sym_node._expr) is sympy.Ne
            number = self.settle(_CLASSES[sym_node.pytype](sym_node))
            if number is UNKNOWN:
                raise
            return number


def asks_whether_empty(question: Any) -> bool:
    return type(question) in (sympy.Eq, sympy.Ne) and 0 in question.args
