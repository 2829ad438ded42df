"""torch's shape environment of one trace, in which unbacked numbers may become known.

In: a symbolic value whose number is needed.  Out: the number where a guard can fix it (`settle`, see
graph/values/known_values); else torch's own refusal.  While a compiler has the graph, sizes with a symbol may be 1:
where an answer need not hold for 1, the symbols are noted (`relied`), and size 1 gets another graph (cache/sharing).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.fx.experimental.validator  # ShapeEnv imports it when it first needs it, and not in the middle of a call
from torch._guards import Source as TorchSource
from torch.fx.experimental import sym_node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv, SLoc
from torch.utils._sympy.functions import Identity
from torch.utils._sympy.value_ranges import ValueRanges

from stator.source import Source, unpinned


class Unknown:
    """The type of UNKNOWN: unknown before the graph runs."""

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
        sym_node._optimized_add = _checked_add
        self.settle: Callable[[Any], Any] = unknown
        self.ragged: dict[sympy.Symbol, torch.SymInt] = {}  # of jagged tensors: no numbers, but equal or not
        self.sizes: set[sympy.Symbol] = set()  # which are 2 at least, by the rule that 0 and 1 are constants
        self.relied: set[sympy.Symbol] = set()  # of which a backend needed what does not hold for 1
        self._lowered: set[sympy.Symbol] = set()
        self._any_kernel = False

    @contextlib.contextmanager
    def any_kernel(self) -> Iterator[None]:
        """While torch chooses among kernels that compute the same: an unbacked size is not taken for 0."""
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
        if isinstance(symbol, sympy.Symbol) and type(val) is torch.SymInt:
            self.ragged[symbol] = self.create_symintnode(symbol, hint=val)
        elif isinstance(symbol, sympy.Symbol) and positive and not do_not_specialize_zero_one:
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

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: str | None = None) -> tuple[SLoc, str]:
        """Name no line: torch would walk the stack for each guard, and first import a part of itself for that."""
        return SLoc(framework_loc or "", None), ""  # a text: torch 2.11 cannot show None

    def _refine_ranges(self, expr: sympy.Basic) -> None:
        """Restore ranges where an assertion of the graph contradicts this call's own sizes: torch notes them first."""
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

    def _set_replacement(self, a: object, tgt: object, msg: str) -> None:
        """Make no replacement whose range torch rounds, in floats near 64 bits, to a wider one: the guard stays."""
        try:
            super()._set_replacement(a, tgt, msg)
        except AssertionError as error:
            if "not a subset of" not in str(error):
                raise

    def replace(self, expr: sympy.Basic) -> object:
        """Put known numbers into an expression, also where sympy does not take Identity(1.0) for one."""
        try:
            return super().replace(expr)
        except ValueError as error:
            if "not comparable" not in str(error):
                raise
        return with_numbers(expr, {symbol: self._find(symbol) for symbol in expr.free_symbols})

    def evaluate_sym_node(self, sym_node: Any, size_oblivious: bool = False, fallback_value: object = None) -> Any:
        try:
            return super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)
        except GuardOnDataDependentSymNode:
            question = sym_node._expr
            if self._any_kernel and type(question) in (sympy.Eq, sympy.Ne) and 0 in question.args:  # is it empty?
                return type(question) is sympy.Ne
            number = self.settle(_CLASSES[sym_node.pytype](sym_node))
            if number is UNKNOWN:
                raise
            return number


def with_numbers(expression: sympy.Basic, known: dict[sympy.Basic, sympy.Basic]) -> sympy.Basic:
    """Replace symbols from the innermost operand outwards; an Identity that has become a number is that number."""
    if expression.is_Symbol:
        return known[expression]
    if not expression.args:
        return expression
    parts = [with_numbers(part, known) for part in expression.args]
    return parts[0] if type(expression) is Identity and parts[0].is_number else expression.func(*parts)


_add = sym_node._optimized_add


def is_sum_of_symbols(expression: object) -> bool:
    return isinstance(expression, sympy.Add) and all(part.is_symbol for part in expression.args)


def _checked_add(left: object, right: object, left_noted: bool = False, right_noted: bool = False) -> tuple[bool, Any]:
    """Add by torch's short cut only where the noted sum of different symbols still is one: after a == b it is `2*a`."""
    return _add(left, right, left_noted and is_sum_of_symbols(left), right_noted and is_sum_of_symbols(right))


class LocatedList(list[Any]):
    """A list of guards that keeps, in `lines`, the user's line at which each was added."""

    def __init__(self, locate: Callable[[], Any]) -> None:
        super().__init__()
        self.locate = locate
        self.lines: list[Any] = []

    def append(self, item: object) -> None:
        super().append(item)
        self.lines.append(self.locate())


@dataclass(frozen=True)
class SavedName:
    """The text of a source, in a cache that torch wrote to disk."""

    name: str

    def text(self) -> str:
        return self.name


class NamedSource(TorchSource):
    """A source of ours behind torch's interface; compiled graphs, which may outlive what it names, keep it."""

    def __init__(self, source: Source | SavedName) -> None:
        state = self.__dict__  # torch's class is frozen, by a method of its own
        state["source"] = unpinned(source) if isinstance(source, Source) else source
        state["identity"] = hash(source)  # of sources with one text, while their objects live

    def __reduce__(self) -> Any:
        return NamedSource, (SavedName(self.source.text()),)

    @property
    def _name_template(self) -> str:
        return self.source.text()

    def __hash__(self) -> int:
        return self.identity

    def __eq__(self, other: object) -> bool:
        return type(other) is NamedSource and self.identity == other.identity and self.source == other.source
