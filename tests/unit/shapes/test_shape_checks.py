"""The stack programs of shape guards: C++ computes what the reference does, and what sympy says."""

from __future__ import annotations

import math
import operator
import random

import pytest
import sympy
import torch
from torch.utils._sympy.functions import (
    CeilToInt,
    FloorDiv,
    FloorToInt,
    LShift,
    Max,
    Min,
    OpaqueUnaryFn_sqrt,
    PythonMod,
    RoundToInt,
    RShift,
    ToFloat,
    TruncToInt,
)

from stator import _core
from stator.guards.guard import Guard, Kind
from stator.guards.lower import lower
from stator.guards.shape_check import Code, Operand, Property, ShapeCheck
from stator.shapes.symbol_guards import compile_check
from stator.shapes.symbolic_values import UserPrinter
from stator.source import Local
from tests.unit.guards.plain_semantics import relation_holds

S = sympy.symbols("s0 s1 s2", integer=True, positive=True)
OPERANDS = {
    S[0]: Operand(Local("x", 0), Property.SIZE, 0),
    S[1]: Operand(Local("x", 0), Property.SIZE, 1),
    S[2]: Operand(Local("n", 1), Property.NUMBER),
}


def program_of(check: ShapeCheck) -> object:
    lowered = lower([Guard(check.operands[0].source, Kind.SHAPE, check)])
    return _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, 2)


def expression(rng: random.Random, depth: int):
    if depth == 0:
        return rng.choice([*S, sympy.Integer(rng.randint(1, 9))])
    left, right = expression(rng, depth - 1), expression(rng, depth - 1)
    match rng.randrange(9):
        case 0:
            return left + right
        case 1:
            return left * right
        case 2:
            return left - right
        case 3:
            return FloorDiv(left, sympy.Integer(rng.randint(1, 7)))
        case 4:
            return PythonMod(left, sympy.Integer(rng.randint(1, 7)))
        case 5:
            return sympy.Abs(left - right)
        case 6:
            return RShift(left, sympy.Integer(rng.randint(1, 4)))
        case 7:
            return LShift(left, sympy.Integer(rng.randint(1, 4)))
    return sympy.Max(left, right) if rng.random() < 0.5 else sympy.Min(left, right)


@pytest.mark.parametrize("seed", range(60))
def test_random_relations(seed):
    rng = random.Random(seed)
    compare = rng.choice([sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge])
    relation = compare(expression(rng, 3), expression(rng, 2), evaluate=False)
    if not relation.free_symbols:
        return
    check = compile_check(relation, OPERANDS)
    program = program_of(check)
    for _ in range(50):
        sizes = rng.randint(1, 12), rng.randint(1, 12)
        n = rng.randint(1, 40)
        x = torch.empty(*sizes)
        want = bool(relation.xreplace({S[0]: sympy.Integer(sizes[0]), S[1]: sympy.Integer(sizes[1]),
                                       S[2]: sympy.Integer(n)}).doit())
        values = [x if operand.source.name == "x" else n for operand in check.operands]
        assert relation_holds(check, values) is want, (relation, sizes, n)
        assert (program.check((x, n)) == -1) is want, (relation, sizes, n)


@pytest.mark.parametrize("divisor", [3, -3, 4, -5])
def test_divisions_below_zero(divisor):
    """Quotients are rounded towards minus infinity, and remainders have the sign of the divisor, as in Python."""
    number = (Operand(Local("n", 1), Property.NUMBER),)
    for code, meaning in ((Code.FLOOR_DIV, operator.floordiv), (Code.MOD, operator.mod)):
        for n in range(-9, 10):
            for off in (0, 1, -1):
                check = ShapeCheck(number, ((Code.LOAD, 0), (Code.CONSTANT, 0), (code, 2), (Code.CONSTANT, 1), (Code.EQ, 2)),
                                   (divisor, meaning(n, divisor) + off), "")
                assert relation_holds(check, [n]) is (off == 0)
                assert (program_of(check).check((None, n)) == -1) is (off == 0)


@pytest.mark.parametrize("value", [True, 3.0, "3", None, 1 << 70, torch.tensor(3)])
def test_only_ints_are_numbers(value):
    check = compile_check(sympy.Ge(S[2], -(1 << 40), evaluate=False), OPERANDS)
    assert program_of(check).check((torch.empty(1, 1), 3)) == -1
    assert program_of(check).check((torch.empty(1, 1), value)) == 0
    assert not relation_holds(check, [value])


def test_what_cannot_be_computed_does_not_hold():
    n = Operand(Local("n", 1), Property.NUMBER)
    squares = ShapeCheck((n,), ((Code.LOAD, 0), (Code.LOAD, 0), (Code.MUL, 2), (Code.CONSTANT, 0), (Code.GE, 2)), (0,), "")
    divides = ShapeCheck((n,), ((Code.CONSTANT, 0), (Code.LOAD, 0), (Code.FLOOR_DIV, 2), (Code.CONSTANT, 0), (Code.LE, 2)),
                         (8,), "")
    far = ShapeCheck((n,), ((Code.LOAD, 0), (Code.ABSOLUTE, 1), (Code.CONSTANT, 0), (Code.GE, 2)), (0,), "")
    for check, bad in ((squares, 1 << 40), (divides, 0), (far, -(1 << 63))):
        assert relation_holds(check, [2]) and program_of(check).check((None, 2)) == -1
        assert not relation_holds(check, [bad]) and program_of(check).check((None, bad)) == 0


REAL = (Operand(Local("x", 0), Property.REAL),)
LOADED = (Code.LOAD, 0)


@pytest.mark.parametrize(("op", "meaning"), [
    (Code.NEGATE, lambda value: int(not value)), (Code.TO_FLOAT, float), (Code.TRUNC, math.trunc),
    (Code.FLOOR, math.floor), (Code.CEIL, math.ceil), (Code.SQUARE_ROOT, math.sqrt),
    (Code.ABSOLUTE, abs), (Code.ROUND, round),
], ids=["negate", "float", "trunc", "floor", "ceil", "sqrt", "abs", "round"])  # fmt: skip
@pytest.mark.parametrize("value", [2.5, -2.5, 4.0, 1e-3, -7.0, float("nan"), float("inf"), 0.0])
def test_operations_on_one_number(op, meaning, value):
    """Both agree with Python about what the result is; of zeros, NaN and infinity nothing holds."""
    ordinary = value != 0.0 and math.isfinite(value) and not (op is Code.SQUARE_ROOT and value < 0)
    result = meaning(value) if ordinary else 0
    for expected, want in ((result, ordinary), (result + 1, False)):
        check = ShapeCheck(REAL, (LOADED, (op, 1), (Code.CONSTANT, 0), (Code.EQ, 2)), (expected,), "")
        assert relation_holds(check, [value]) is want
        assert (program_of(check).check((value, 0)) == -1) is want


def test_a_choice_between_numbers():
    choose = (LOADED, (Code.CONSTANT, 0), (Code.GT, 2), LOADED, (Code.CONSTANT, 1), (Code.CHOOSE, 0))
    check = ShapeCheck(REAL, (*choose, (Code.CONSTANT, 2), (Code.EQ, 2)), (1.0, 5.0, 5.0), "")
    for value, want in ((0.5, True), (2.0, False), (5.0, True)):
        assert relation_holds(check, [value]) is want
        assert (program_of(check).check((value, 0)) == -1) is want


@pytest.mark.parametrize(("sizes", "want"), [((5, 1), True), ((3, 2), False), ((3, 9), True), ((1, 1), False)])
def test_a_choice_between_sizes(sizes, want):
    first = sympy.Piecewise((S[0], S[0] > 3), (S[1] * 2, S[0] > 2), (0, True))
    check = compile_check(sympy.Gt(first, 4, evaluate=False), OPERANDS)
    x = torch.empty(*sizes)
    assert relation_holds(check, [x for _ in check.operands]) is want
    assert (program_of(check).check((x, 0)) == -1) is want


@pytest.mark.parametrize(("expression", "text"), [
    (ToFloat(S[0]), "float(x.size(0))"), (TruncToInt(ToFloat(S[2])), "int(float(n))"),
    (FloorToInt(ToFloat(S[2])), "math.floor(float(n))"), (CeilToInt(ToFloat(S[2])), "math.ceil(float(n))"),
    (OpaqueUnaryFn_sqrt(ToFloat(S[0])), "math.sqrt(float(x.size(0)))"),
    (Min(S[0], S[1]), "min(x.size(0), x.size(1))"), (Max(S[0], 4), "max(4, x.size(0))"),
    (sympy.Abs(S[2]), "n"), (sympy.Abs(S[0] - 8), "abs((-8) + x.size(0))"), (RoundToInt(ToFloat(S[2])), "round(float(n))"),
], ids=str)  # fmt: skip
def test_numbers_in_the_users_terms(expression, text):
    names = {symbol: sympy.Symbol(operand.text()) for symbol, operand in OPERANDS.items()}
    assert UserPrinter().doprint(expression.xreplace(names)) == text


def test_malformed_payloads_are_refused():
    for payload in ((), (((9, 0, 0),), (), ()), (((0, 9, 0),), (), ()), (((0, 0, 0),), ((0, 3),), ())):
        with pytest.raises((ValueError, TypeError)):
            _core.GuardProgram([(0, -1, 0)], [(0, int(Kind.SHAPE), payload)], [], 1)


def test_a_sum_that_passes_64_bits_does_not_hold():
    """It is no negative number either, which it would be if it were computed on."""
    for relation in (sympy.Lt(S[2] + 5, 1, evaluate=False), sympy.Gt(S[2] + 5, 1, evaluate=False)):
        check = compile_check(relation, OPERANDS)
        assert program_of(check).check((None, 2**63 - 2)) == 0


@pytest.mark.parametrize("value", [1, True, "1.0", None, 2**70])
def test_only_floats_are_real_numbers(value):
    number = sympy.Symbol("f0", real=True)
    check = compile_check(sympy.Gt(number, -5.0, evaluate=False), {number: Operand(Local("n", 1), Property.REAL)})
    program = program_of(check)
    assert program.check((None, 1.5)) == -1
    assert program.check((None, value)) == 0
