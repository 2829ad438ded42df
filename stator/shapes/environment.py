"""torch's shape environment, which may learn a number that only the graph knew.

In: a symbolic value whose number is wanted, by the program, by C code or by the rule of an operation.  Out: the number
where it follows from what a guard can promise (`settle`, see graph/values/known_values); else torch's own refusal. A
compiler that asks gets the refusal only: most have a way that does not need the number.

While a compiler has the graph, sizes that have a symbol may be 1 as far as its simplifications are concerned. What only
sizes of 2 and more answer is answered for those, as the graph was made for them; where the answer need not hold for 1,
the symbols are noted (`relied`), and the compiled graph is not used for them at size 1 (see cache/sharing).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
import torch.fx.experimental.validator  # ShapeEnv imports it when it first needs it, and not in the middle of a call
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.utils._sympy.value_ranges import ValueRanges

from stator.shapes.symbol_sums import correct_sums


class Unknown:
    """The type of UNKNOWN: nobody can tell before the graph runs."""

    __slots__ = ()


UNKNOWN = Unknown()
_CLASSES: dict[type, Any] = {int: torch.SymInt, float: torch.SymFloat, bool: torch.SymBool}


def unknown(value: object) -> Unknown:
    """The answer outside a trace."""
    return UNKNOWN


class TraceEnvironment(ShapeEnv):
    """The shape environment of one trace."""

    def __init__(self) -> None:
        super().__init__()
        correct_sums()
        self.settle: Callable[[Any], Any] = unknown
        self.sizes: set[sympy.Symbol] = set()  # which are 2 at least, by the rule that 0 and 1 are constants
        self.relied: set[sympy.Symbol] = set()  # of which a backend asked what does not hold for 1
        self._lowered: set[sympy.Symbol] = set()
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
            with self.any_kernel(), self._down_to_one():
                yield
        finally:
            self.settle = before

    def create_symbol(self, val: object, source: object, *args: object, positive: bool | None = True,
                      do_not_specialize_zero_one: bool = False, **kwargs: object) -> sympy.Expr:
        symbol = super().create_symbol(val, source, *args, positive=positive,
                                       do_not_specialize_zero_one=do_not_specialize_zero_one, **kwargs)
        if isinstance(symbol, sympy.Symbol) and positive and not do_not_specialize_zero_one:
            self.sizes.add(symbol)
        return symbol

    @contextlib.contextmanager
    def _down_to_one(self) -> Iterator[None]:
        ranges = self.var_to_range
        self._lowered = {size for size in self.sizes if size in ranges and ranges[size].lower == 2}
        for size in self._lowered:
            ranges[size] = ValueRanges(1, ranges[size].upper)
        self._version_counter += 1  # what was simplified with the other ranges is forgotten
        try:
            yield
        finally:
            for size in self._lowered:
                ranges[size] = ValueRanges(max(2, ranges[size].lower), ranges[size].upper)
            self._lowered = set()
            self._version_counter += 1

    def evaluate_expr(self, orig_expr: Any, hint: object = None, fx_node: object = None, size_oblivious: bool = False,
                      fallback_value: object = None, *, forcing_spec: bool = False) -> Any:
        if self._lowered and orig_expr.free_symbols & self._lowered:
            answer = self._maybe_evaluate_static(orig_expr)
            if answer is None:
                answer = self._for_two_and_more(orig_expr)
                if answer is not None and not size_oblivious and fallback_value is not bool(answer):
                    self.relied |= orig_expr.free_symbols & self._lowered
            if answer is not None:
                return answer
        return super().evaluate_expr(orig_expr, hint, fx_node, size_oblivious, fallback_value,
                                     forcing_spec=forcing_spec)

    def _refine_ranges(self, expr: Any) -> None:
        """What an assertion in the graph says of sizes; what this call's own sizes contradict leaves nothing behind.

        torch notices after it has noted the range: as a guard, that would reject the call it came from.
        """
        before = None if expr.free_symbols <= self.backed_var_to_val.keys() else dict(self.var_to_range)
        try:
            super()._refine_ranges(expr)
        except AssertionError:
            if before is not None:
                self.var_to_range.update(before)
                self._update_version_counter()
                self._maybe_evaluate_static.cache_clear()
            raise

    def _for_two_and_more(self, expression: Any) -> Any:
        ranges = tuple((symbol, ValueRanges(2, known.upper) if symbol in self._lowered and known.lower < 2 else known)
                       for symbol, known in self.var_to_range.items() if symbol in expression.free_symbols)
        return self._maybe_evaluate_static(expression, var_to_range=ranges)

    def _set_replacement(self, a: Any, tgt: Any, msg: str) -> None:
        """Near the ends of 64 bits torch works out the range of a replacement in floats, and finds it too wide by a
        few: then there is no replacement, and the guard says what it would have said."""
        try:
            super()._set_replacement(a, tgt, msg)
        except AssertionError as error:
            if "not a subset of" not in str(error):
                raise

    def evaluate_sym_node(self, sym_node: Any, size_oblivious: bool = False, fallback_value: object = None) -> Any:
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
