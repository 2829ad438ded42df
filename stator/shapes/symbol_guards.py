"""Guards over symbols.   s0 >= 2, Eq(Mod(s0, 8), 0)  ->  ShapeChecks over x.size(0), each with the user's line

In: the property of each symbol; decisions of torch's shape environment, after the backend has run.  Out: guards that
hold exactly while those decisions do; where an expression has no program, its symbols keep their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import sympy
from torch.utils._sympy import functions as fs
from torch.utils._sympy.numbers import int_oo

from stator.errors import DeclarationError
from stator.guards.guard import Guard, Kind
from stator.guards.shape_check import Code, Operand, ShapeCheck
from stator.shapes.named_dimensions import Relation
from stator.shapes.symbolic_values import UserPrinter, hint_of

_MANY: dict[Any, Code] = {
    sympy.Add: Code.ADD, sympy.Mul: Code.MUL, fs.Max: Code.MAX, fs.Min: Code.MIN, sympy.Max: Code.MAX,
    sympy.Min: Code.MIN, sympy.And: Code.ALL, sympy.Or: Code.ANY,
}
_TWO: dict[Any, Code] = {
    fs.FloorDiv: Code.FLOOR_DIV, fs.CleanDiv: Code.FLOOR_DIV, fs.PythonMod: Code.MOD, fs.Mod: Code.MOD,
    fs.PowByNatural: Code.POW, sympy.Eq: Code.EQ, sympy.Ne: Code.NE, sympy.StrictLessThan: Code.LT,
    sympy.LessThan: Code.LE, sympy.StrictGreaterThan: Code.GT, sympy.GreaterThan: Code.GE,
    fs.IntTrueDiv: Code.TRUE_DIV, fs.FloatTrueDiv: Code.TRUE_DIV, fs.FloatPow: Code.POW,
}
_ONE: dict[Any, Code] = {
    sympy.Not: Code.NEGATE, fs.ToFloat: Code.TO_FLOAT, fs.TruncToInt: Code.TRUNC, fs.FloorToInt: Code.FLOOR,
    fs.CeilToInt: Code.CEIL, fs.OpaqueUnaryFn_sqrt: Code.SQUARE_ROOT, sympy.Abs: Code.ABSOLUTE,
    fs.RoundToInt: Code.ROUND,
}
_CHOICES: dict[Any, Code] = {fs.Where: Code.CHOOSE, sympy.ITE: Code.CHOOSE}
_SHIFTS: dict[Any, Code] = {fs.LShift: Code.MUL, fs.RShift: Code.FLOOR_DIV}  # by a power of two


class _Untranslatable(Exception):
    """There is no program for the expression."""


class _Compiler:
    """One expression into operands, code and constants."""

    def __init__(self, operands: dict[sympy.Symbol, Operand]) -> None:
        self.known = operands
        self.operands: list[Operand] = []
        self.code: list[tuple[int, int]] = []
        self.constants: list[int | float] = []

    def emit(self, expression: Any) -> None:
        if isinstance(expression, sympy.Symbol):
            return self.load(self.known[expression])
        if isinstance(expression, (sympy.Integer, sympy.Float)):
            return self.constant(int(expression) if isinstance(expression, sympy.Integer) else float(expression))
        if expression in (sympy.true, sympy.false):
            return self.constant(int(bool(expression)))
        kind = expression.func
        if kind is fs.Identity:
            return self.emit(expression.args[0])
        if kind is sympy.Pow and isinstance(expression.exp, sympy.Integer) and expression.exp >= 0:
            return self.apply(Code.POW, expression.args)
        for table, count in ((_MANY, None), (_TWO, 2), (_ONE, 1), (_CHOICES, 3)):
            if kind in table and count in (None, len(expression.args)):
                return self.apply(table[kind], expression.args)
        if kind in _SHIFTS:
            return self.apply(_SHIFTS[kind], (expression.args[0], fs.PowByNatural(sympy.S(2), expression.args[1])))
        if kind is sympy.Piecewise and expression.args[-1].cond == sympy.true:
            return self.choose([(pair.cond, pair.expr) for pair in expression.args])
        raise _Untranslatable(str(expression))

    def choose(self, pairs: list[Any]) -> None:
        """The first expression whose condition holds; the last condition always does."""
        (condition, value), *rest = pairs
        if not rest:
            return self.emit(value)
        self.emit(condition)
        self.emit(value)
        self.choose(rest)
        self.code.append((int(Code.CHOOSE), 3))

    def load(self, operand: Operand) -> None:
        if operand not in self.operands:
            self.operands.append(operand)
        self.code.append((int(Code.LOAD), self.operands.index(operand)))

    def constant(self, value: int | float) -> None:
        if type(value) is int and not -(1 << 63) <= value < 1 << 63:
            raise _Untranslatable(hex(value))
        self.code.append((int(Code.CONSTANT), len(self.constants)))
        self.constants.append(value)

    def apply(self, op: Code, args: tuple[Any, ...]) -> None:
        for argument in args:
            self.emit(argument)
        self.code.append((int(op), len(args)))


def compile_check(expression: Any, operands: dict[sympy.Symbol, Operand],
                  equal_to: Operand | None = None) -> ShapeCheck:
    """The check of a relation; with `equal_to`, that this operand equals the expression."""
    compiler = _Compiler(operands)
    if equal_to is not None:
        compiler.load(equal_to)
    compiler.emit(expression)
    names = {symbol: sympy.Symbol(operands[symbol].text()) for symbol in expression.free_symbols}
    shown = UserPrinter().doprint(expression.xreplace(names))
    if equal_to is not None:
        compiler.code.append((int(Code.EQ), 2))
        shown = f"{equal_to.text()} == {shown}"
    return ShapeCheck(tuple(compiler.operands), tuple(compiler.code), tuple(compiler.constants), shown)


def shape_guards(symbols: Any, lines: Any, relations: Iterable[Relation] = ()) -> list[Guard]:
    """Every decision about the symbols of one trace, as guards."""
    env, origins = symbols.shape_env, symbols.origins
    guards: list[Guard] = []
    seen: set[Any] = set()

    def add(expression: Any, where: Any) -> None:
        if expression is sympy.true or expression in seen:
            return
        seen.add(expression)
        ragged = expression.free_symbols & env.ragged.keys()  # which tensors have one in common is guarded for all
        for symbol in sorted(expression.free_symbols - ragged if ragged else (), key=str):
            add(sympy.Eq(symbol, env.backed_var_to_val[symbol], evaluate=False), where)
        if not expression.free_symbols <= origins.keys():
            return  # about unbacked numbers: asserted in the graph
        try:
            check = compile_check(expression, origins)
        except _Untranslatable:
            for symbol in sorted(expression.free_symbols, key=str):
                add(sympy.Eq(symbol, env.backed_var_to_val[symbol], evaluate=False), where)
            return
        if check.operands:
            guards.append(Guard(check.operands[0].source, Kind.SHAPE, check, where))

    for operand, expression, where in symbols.properties:
        guards += _property_guard(operand, expression, where, origins)
    for symbol in origins:
        for expression in _range(symbol, env):
            add(expression, symbols.lines.get(symbol))
    for i, guard in enumerate(env.guards):
        add(guard.expr, lines[i] if i < len(lines) else None)
    for symbol, value in env.replacements.items():
        if symbol in origins and value.free_symbols <= origins.keys():
            add(sympy.Eq(symbol, value, evaluate=False), symbols.lines.get(symbol))
    sizes = {name: size if type(size) is int else size.node.expr for name, size in symbols.named.items()}
    for relation in relations:
        if sizes.keys() >= set(relation.names()):
            add(relation.of(sizes), None)
    return guards


def require_declared(symbols: Any, lines: object) -> None:
    """Raise where the program has pinned down what the user declared open, or made one of two names."""
    env = symbols.shape_env
    roots: dict[Any, tuple[Operand, Any, Any]] = {}
    for operand, size, named in symbols.declared:
        label = f"{operand.text()} is declared {'dynamic' if named is None else f'as {named.text()}'}"
        symbol = size.node._expr
        value = env.replace(symbol)
        if not value.free_symbols:
            raise DeclarationError(f"{label} and is {hint_of(size)} in this call, but the program needs it to be "
                                   f"{value}{_where(symbol, env, lines)}; use maybe_mark_dynamic, or take the code out "
                                   "that depends on the value")
        if named is None or not isinstance(value, sympy.Symbol):
            continue
        other = roots.setdefault(value, (operand, size, named))
        if other[2].name != named.name:
            raise DeclarationError(f"{label} and {other[0].text()} as {other[2].text()}; they are {hint_of(size)} and "
                                   f"{hint_of(other[1])} in this call, and the program needs them to be equal"
                                   f"{_where(symbol, env, lines)}; give them one name")


def _where(symbol: sympy.Symbol, env: Any, lines: Any) -> str:
    """The user's line that decided about a symbol."""
    for i, guard in enumerate(env.guards):
        if i < len(lines) and lines[i] and symbol in guard.expr.free_symbols and isinstance(guard.expr, sympy.Eq):
            filename, line, function = lines[i]
            return f" ({function} at {filename}:{line})"
    return ""


def _property_guard(operand: Operand, expression: Any, where: Any, origins: Any) -> list[Guard]:
    """A size or stride that is no symbol of its own: it equals an expression of others."""
    if isinstance(expression, sympy.Symbol) and origins.get(expression) == operand or not expression.free_symbols:
        return []  # of a constant: the guard of the tensor compares it
    return [Guard(operand.source, Kind.SHAPE, compile_check(expression, origins, equal_to=operand), where)]


def _range(symbol: sympy.Symbol, env: Any) -> Iterator[Any]:
    known = env.var_to_range.get(symbol)
    if known is None:
        return
    if known.lower not in (-int_oo, -sympy.oo) and known.lower > -(1 << 62):
        yield sympy.GreaterThan(symbol, known.lower, evaluate=False)
    if known.upper not in (int_oo, sympy.oo) and known.upper < (1 << 62):
        yield sympy.LessThan(symbol, known.upper, evaluate=False)
