"""Symbolic numbers, and values that are handed around unread.   u0 + 1, 2*s0; a str with nine values  ->  Varying

Out: the Python type of a SymInt, SymFloat or SymBool; its number where one is needed (a guard if it has one, else a
Break); Python's arithmetic on it.  Of a value that changes too often only the type is known: to look at it breaks.
"""

from __future__ import annotations

import collections
import math
import operator
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy
import sympy
import torch
from sympy.logic.boolalg import BooleanFunction
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    has_free_unbacked_symbols,
    statically_known_true,
)
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import Identity
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.reference import PythonReferenceAnalysis

from stator.breaks import Break


def unread_text(value: object) -> str:
    """The `__repr__` that C code finds: of a value that an object of C code holds."""
    raise unread(value, "repr()")


class Varying:
    """The stand-in; each Python type has a subclass of its own, so that a class holds all that is known."""

    __slots__ = ()
    __repr__ = unread_text
    python_type: type = object


_ITERATORS: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter(range(0))), type(iter(range(1 << 70))), type(iter({})),
    type(iter({}.values())), type(iter({}.items())), type(iter(set())), type(reversed([])), enumerate, zip)
_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict, range,
               type({}.keys()), type({}.values()), type({}.items()))
_PLAIN = (str, bytes, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_NUMPY = {cls for cls in numpy.sctypeDict.values() if numpy.dtype(cls).kind in "biufc"}
COLLECTIONS = frozenset(_ITERATORS + _CONTAINERS)
class GraphScalar(Varying):
    """A numpy scalar whose value is a tensor of the graph: what numpy makes of `x.numpy().sum()`."""

    __slots__ = ("tensor",)
    tensor: torch.Tensor  # the fake one, of no dimensions


def _subclass(base: type, name: str, cls: type) -> Any:
    return type(f"{name}_{cls.__name__}", (base,), {"__slots__": (), "python_type": cls})


STANDINS: dict[type, type[Varying]] = {
    cls: _subclass(Varying, "Varying", cls) for cls in (*_PLAIN, *_NUMPY, *_CONTAINERS, *_ITERATORS)}
GRAPH_SCALAR_OF: dict[type, type[GraphScalar]] = {cls: _subclass(GraphScalar, "Held", cls) for cls in _NUMPY}
GRAPH_SCALARS = frozenset(GRAPH_SCALAR_OF.values())


def varying(value: object) -> Varying:
    """A stand-in for a value of one of the types in STANDINS."""
    return STANDINS[type(value)]()


@dataclass(frozen=True, eq=False)
class Formatted:
    """A replacement field of an f-string whose value is not known yet."""

    value: Any
    conversion: str  # "", "s", "r" or "a"
    spec: Any  # a str, or a DeferredText


class DeferredText:
    """Text made of an unbacked number or a tensor: f"{n} tokens"; `parts` are str and Formatted.  Reading it breaks."""

    __slots__ = ("parts",)
    __repr__ = unread_text

    def __init__(self, parts: tuple[Any, ...] = ()) -> None:
        self.parts = parts


UNREAD: frozenset[type] = frozenset[type]({DeferredText, *STANDINS.values()}) | GRAPH_SCALARS  # of unknown value
SYMBOLIC: frozenset[type] = UNREAD | {torch.SymInt, torch.SymFloat, torch.SymBool}
PYTHON_TYPES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool, DeferredText: str,
                                  **{standin: cls for cls, standin in (*STANDINS.items(), *GRAPH_SCALAR_OF.items())}}
_NUMBERS = frozenset({int, float, bool})
# Python defines float // and % by fmod, torch by rounding the quotient: 1.0 // 0.1 is 9.0, not 10.0.
# Powers of floats raise or turn complex where torch's do not: see interp/numbers/float_arithmetic.
_FLOAT_DIFFERS = frozenset({operator.floordiv, operator.mod, operator.ifloordiv, operator.imod, operator.pow,
                            operator.ipow})
_DIVIDES = frozenset({operator.truediv, operator.itruediv, operator.floordiv, operator.ifloordiv, operator.mod,
                      operator.imod})
_GROWING = frozenset({operator.mul, operator.imul, operator.pow, operator.ipow, operator.lshift, operator.ilshift})
_SHIFTS = frozenset({operator.lshift, operator.ilshift, operator.rshift, operator.irshift})
_PRODUCTS = frozenset({operator.mul, operator.imul})
_WIDTH = 62  # bits that integers of compiled code may grow to
_RING = _PRODUCTS | {operator.add, operator.iadd, operator.sub, operator.isub}
_OF_RAGGED = frozenset({operator.mul, operator.eq, operator.ne})
_COMPARISONS = frozenset({operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge})
_BITWISE = frozenset({operator.and_, operator.iand, operator.or_, operator.ior})


def python_type(value: object) -> type:
    """The class the program believes the value to have."""
    return PYTHON_TYPES.get(type(value), type(value))


def is_unbacked(value: object) -> bool:
    """Whether the number is unknown until the graph runs."""
    return type(value) in SYMBOLIC and (type(value) in UNREAD or has_free_unbacked_symbols(value))


def has_unbacked(tree: Any) -> bool:
    """Whether a data-dependent number, or a tensor of data-dependent size, lies in nested arguments."""
    if type(tree) is FakeTensor and not tree._has_symbolic_sizes_strides:
        return False
    return any(has_free_unbacked_symbols(leaf) for leaf in pytree.tree_leaves(tree)
               if isinstance(leaf, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)))


def data_dependent(expression: object, what: str = "") -> Break:
    return Break("SB003", f"{what or 'a number'} that is unbacked ({expression})", condition=expression)


def in_the_users_terms(stop: Break, symbols: Any, written: Callable[[fx.Node], str]) -> None:
    """Name the numbers of a data-dependent break as the program does, and the check that would resolve it."""
    condition = stop.stop.condition
    if not isinstance(condition, sympy.Basic) or not condition.free_symbols:
        return
    text = symbols.in_words(condition, written)
    stop.detail = stop.detail.replace(f" ({condition})", f" ({text})" if text else "")
    if text and isinstance(condition, (BooleanFunction, sympy.Rel)):
        opposite = symbols.in_words(sympy.Not(condition), written)
        stop.remedy = f"{stop.remedy}; here: torch._check({text}), or torch._check({opposite}), where one always holds"


def unread(value: object, what: str = "") -> Break:
    """The break at an instruction that looks at a value of which only the type is known."""
    return unread_class(type(value), what)


def unread_class(cls: type, what: str = "") -> Break:
    """The same, for the class of a stand-in."""
    if cls is DeferredText:
        return Break("SB003", "text made of an unbacked number")
    kind = PYTHON_TYPES[cls].__name__
    if cls in GRAPH_SCALARS:
        return Break("SB003", f"{what or 'an instruction'} of a numpy.{kind} that is unbacked")
    if "iterator" in kind:
        what, kind = "the next item", "loop"
    return Break("SB024", f"{what or 'an instruction'} of a {kind} that changes from call to call", varying=True)


def is_ragged(value: object) -> bool:
    """Whether a value is computed from the ragged size of a jagged tensor, which is no number."""
    if not isinstance(value, (torch.SymInt, torch.SymBool)):
        return False
    known = getattr(value.node.shape_env, "ragged", None)
    return bool(known) and not value.node.expr.free_symbols.isdisjoint(known)


def specialise(value: Any, what: str = "") -> Any:
    """The number itself: what it is becomes a guard; a data-dependent one that no guard can fix breaks."""
    cls = type(value)
    if cls not in SYMBOLIC:
        return value
    if cls in UNREAD:
        raise unread(value, what)
    if cls is torch.SymInt and is_ragged(value):
        raise Break("SB017", "the ragged size of a jagged tensor, used as a number")
    try:
        if cls is torch.SymInt:
            return value.node.guard_int("", 0)
        if cls is torch.SymFloat:
            hint = hint_of(value)
            if hint is not None and not math.isfinite(hint) and not isinstance(value.node.expr, sympy.Symbol):
                _specialise_parts(value.node)
                return hint
            return value.node.guard_float("", 0)
        return value.node.guard_bool("", 0)
    except GuardOnDataDependentSymNode as error:
        raise data_dependent(error.cond, what) from None


def _specialise_parts(node: fx.Node) -> None:
    """Make guards of the numbers in an expression that is infinite or nan: algebra says of none that it is."""
    env = node.shape_env
    for symbol in sorted(node.expr.free_symbols, key=str):
        make, kind = (env.create_symintnode, int) if symbol.is_integer else (env.create_symfloatnode, float)
        specialise(make(symbol, hint=kind(env.backed_var_to_val[symbol])))


def as_constant(value: Any) -> Any:
    """The number, if the symbols already determine it; else the value as it was."""
    if type(value) in UNREAD:
        return specialise(value)
    expression = value.node.expr
    if expression is sympy.true or expression is sympy.false:
        return bool(expression)
    if expression.is_number if isinstance(expression, sympy.Expr) else False:
        if type(value) is torch.SymInt:
            return int(expression)
        return value.node.hint if value.node.has_hint() else float(expression)  # with sums in the program's order
    return value


def as_integer(value: Any) -> Any:
    """A bool as the 0 or 1 it counts for in arithmetic."""
    if type(value) is bool:
        return int(value)
    if type(value) is not torch.SymBool:
        return value
    node = value.node
    hint = None if has_free_unbacked_symbols(value) or not node.has_hint() else int(node.hint)
    choice = sympy.Piecewise((1, node.expr), (0, True))
    # sympy makes ITE, which torch has no handler for, of a comparison with a choice inside a choice.
    choice = choice.replace(sympy.ITE, lambda test, then, other: (test & then) | (~test & other))
    return node.shape_env.create_symintnode(choice, hint=hint)


def compute(function: Callable[..., Any], *values: object) -> Any:
    """Arithmetic or a comparison on numbers, some of them symbolic; the program's exceptions pass through."""
    kinds = {python_type(value) for value in values}
    if not kinds <= _NUMBERS or float in kinds and function in _FLOAT_DIFFERS \
            or function in _DIVIDES and not _nonzero(values[1]) \
            or function in _SHIFTS and float not in kinds and not is_unbacked(values[1]) and as_integer(values[1]) < 0:
        return function(*map(specialise, values))
    if function not in _OF_RAGGED and any(map(is_ragged, values)):
        return function(*map(specialise, values))
    if kinds != {bool} or function not in _BITWISE and function not in (operator.eq, operator.ne):
        values = tuple(map(as_integer, values))
    if function in _GROWING and _overflows(function, *values):
        return function(*map(specialise, values))
    if float in kinds and function in _COMPARISONS and _same_expression(*values):
        if _is_no_nan(values[0]):
            return function(0.0, 0.0)
        return function(*map(specialise, values))  # nan differs from itself, which symbols do not know
    if float in kinds:
        closed = in_order(function, values)
        if closed is None:
            return function(*map(specialise, values))
        values = closed
    try:
        result = function(*values)
    except GuardOnDataDependentSymNode as error:
        raise data_dependent(error.cond) from None
    except (TypeError, NotImplementedError, AttributeError):  # an operator that torch's symbols do not have
        return function(*map(specialise, values))
    return as_constant(result) if type(result) in SYMBOLIC else result


def in_order(function: Callable[..., Any], values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Operands of a sum, difference, product or comparison of floats, such that no algebra reaches through them:
    (f + 1e16) - 1e16 is not f, and f - f is not 0 where f is infinite.  None where only the numbers decide.
    """
    if len(values) != 2 or function not in _RING and function not in _COMPARISONS:
        return values
    left, right = values
    operands = _atom(left, False), _atom(right, _same_expression(left, right))
    constants = [value for value in operands if type(value) not in SYMBOLIC]
    if any(value in (math.inf, -math.inf) or value != value or value == 0 and function in _PRODUCTS
           for value in constants):
        return None
    return operands


def _atom(value: Any, again: bool) -> Any:
    """A float whose expression is closed to algebra; `again`: the other operand has the same one."""
    if type(value) is not torch.SymFloat:
        return value
    node = value.node
    if node.expr.is_number:
        return as_constant(value)
    if isinstance(node.expr, (sympy.Symbol, Identity)) and not again:
        return value
    closed = Identity(node.expr) if not again or isinstance(node.expr, sympy.Symbol) else Identity(Identity(node.expr))
    return node.shape_env.create_symfloatnode(closed, hint=hint_of(value))


def _is_no_nan(value: Any) -> bool:
    """Whether a float is below infinity, which becomes a guard."""
    if is_unbacked(value) or not value.node.hint <= sys.float_info.max:
        return False
    return bool(value <= sys.float_info.max)


def kept_apart(result: object, values: tuple[Any, ...]) -> Any:
    """A result that symbols hold for one of its operands (f + 0.0 where f may be -0.0) is a number of its own."""
    return _atom(result, True) if any(_same_expression(result, value) for value in values) else result


def _overflows(function: Callable[..., Any], left: object, right: object) -> bool:
    """Whether a product, power or shift leaves the 64 bits that compilers compute with; if not, that is a guard."""
    hints = [hint_of(value) for value in (left, right)]
    powers = function in (operator.pow, operator.ipow)
    if any(type(hint) is not int for hint in hints):  # whether an exponent is negative decides what the power is
        return function not in _PRODUCTS and {python_type(left), python_type(right)} == {int} and hints[1] is None
    bits, other = abs(hints[0]).bit_length(), abs(hints[1])
    if function in _PRODUCTS:
        other = other.bit_length()
    if max(bits, 1) * other > _WIDTH if powers else bits + other > _WIDTH:
        return True
    if type(right) is not int and type(left) is not int:  # both may grow
        bits = max(bits, min(8, _WIDTH // max(other, 1))) if powers else bits + (_WIDTH - bits - other) // 2
    if type(right) is not int:
        other = _WIDTH // max(bits, 1) if powers else _WIDTH - bits
    _keep_within(left, 1 << (_WIDTH // max(other, 1) if powers else _WIDTH - other))
    _keep_within(right, 1 << other if function in _PRODUCTS else other)
    return False


def _keep_within(value: Any, limit: int) -> None:
    """A guard that a number of the program is no further from 0; sizes of tensors have no room to be."""
    if type(value) is torch.SymInt and not all(symbol.is_nonnegative for symbol in value.node.expr.free_symbols):
        bool(value <= limit)
        bool(value >= -limit)


def hint_of(value: Any) -> Any:
    """The number that a symbol has in the call being traced; None where it is unbacked."""
    if type(value) not in SYMBOLIC:
        return value
    return None if is_unbacked(value) or not value.node.has_hint() else value.node.hint


def _nonzero(divisor: object) -> bool:
    """Whether a divisor cannot be zero; for a size that is a guard."""
    if type(divisor) not in SYMBOLIC:
        return bool(divisor != 0)
    if is_unbacked(divisor):
        return statically_known_true(as_integer(divisor) != 0)
    return bool(as_integer(divisor) != 0)


def _same_expression(left: Any, right: Any) -> bool:
    return type(left) in SYMBOLIC and type(right) in SYMBOLIC and left.node.expr == right.node.expr


def holds_symbol(values: Iterable[Any]) -> bool:
    """Whether one of the values, or of their direct elements, is symbolic."""
    for value in values:
        cls = type(value)
        if cls in SYMBOLIC or cls in _SEQUENCES and any(type(item) in SYMBOLIC for item in value) \
                or cls is slice and holds_symbol((value.start, value.stop, value.step)):
            return True
    return False


_SEQUENCES = frozenset({tuple, list, torch.Size})

if not hasattr(PythonReferenceAnalysis, "identity"):  # torch's pass for assertions in graphs reads expressions with it
    PythonReferenceAnalysis.identity = staticmethod(lambda value: value)


def _called(name: str) -> Callable[..., Any]:
    return lambda self, expr: f"{name}({', '.join(map(self._print, expr.args))})"


class UserPrinter(PythonPrinter):  # type: ignore[misc]
    """Expressions as a user would write them.   2*s0 >= FloorDiv(s1, 2)  ->  2*x.size(0) >= y.size(0) // 2"""

    _print_ToFloat = _called("float")
    _print_TruncToInt = _called("int")
    _print_FloorToInt = _called("math.floor")
    _print_CeilToInt = _called("math.ceil")
    _print_OpaqueUnaryFn_sqrt = _called("math.sqrt")
    _print_RoundToInt = _called("round")
    _print_Abs = _called("abs")
    _print_Float = staticmethod(lambda expr: repr(float(expr)))  # type: ignore[assignment]
    _print_Min = _called("min")
    _print_Max = _called("max")
