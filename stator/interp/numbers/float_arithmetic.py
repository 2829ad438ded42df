"""Float arithmetic that may raise, or that symbols would simplify.

    1 / t.item(), 0.9 ** t.item()   ->  an unbacked number, and an assertion that Python would not raise
    (a + b) - (a + b)               ->  stator::float_sub, not 0: NaN if infinite
    (1.0 + a) - b                   ->  stator::float_sub, not a - b + 1.0, which is rounded otherwise
"""

from __future__ import annotations

import math
import operator
import sys
from typing import Any

import sympy
import torch
from torch import fx

from stator.graph.values.graph_numbers import FLOAT_ADD, FLOAT_MUL, FLOAT_SUB
from stator.interp.frame import places_from
from stator.interp.graph_errors import Assertion
from stator.interp.lookup import MISSING
from stator.interp.services import VM
from stator.shapes.symbolic_values import SYMBOLIC, as_integer, hint_of, is_unbacked, python_type

_COMPARES = {operator.ne: torch.ne, operator.ge: torch.ge, operator.gt: torch.gt, operator.le: torch.le}
_ZERO_POWER = ZeroDivisionError("0.0 cannot be raised to a negative power")
_RANGE = OverflowError(34, "Numerical result out of range")
_COMPLEX = ArithmeticError("a negative number to a fractional power, which is complex")
_NEGATIVE = operator.neg
_SPELLED = {operator.add: FLOAT_ADD, operator.iadd: FLOAT_ADD, operator.sub: FLOAT_SUB, operator.isub: FLOAT_SUB,
            operator.mul: FLOAT_MUL, operator.imul: FLOAT_MUL}


def boxed(vm: VM, value: object) -> Any:
    one = vm.torch_call(torch.ones, ((),), {"dtype": torch.float64, "device": "cpu"})
    return vm.torch_call(torch.mul, (one, value), None)


def promise(vm: VM, compare: object, value: object, bound: float, error: Exception) -> None:
    """The graph asserts `compare(value, bound)`; where that fails, the program raises `error`."""
    # A comparison of numbers would become a guard; Inductor (torch 2.11) drops assertions about unbacked floats.
    promise_of(vm, compare, boxed(vm, value), bound, error)


def promise_of(vm: VM, compare: Any, tensor: object, bound: float, error: Exception) -> None:
    text = f"stator assertion {len(vm.residual.assertions)}"
    vm.residual.assertions.append(Assertion(text, type(error), error.args, places_from(vm.frame)))
    held = vm.torch_call(_COMPARES[compare], (tensor, bound), None)
    vm.torch_call(torch.ops.aten._assert_async.msg, (held, text), None)


def quotient(vm: VM, dividend: object, divisor: Any) -> Any:
    """A division by a number that may come to be zero; MISSING where it is zero now."""
    if not is_unbacked(divisor) and divisor.node.hint == 0:
        return MISSING
    try:
        python_type(dividend)(1) / python_type(divisor)(0)
    except ZeroDivisionError as error:  # its text depends on the types and on the version
        promise(vm, operator.ne, divisor, 0, ZeroDivisionError(*error.args))
    return as_integer(dividend) / divisor


def power(vm: VM, base: Any, exponent: Any) -> Any:
    """A power of floats, one of them a constant; MISSING where nothing is known of it, or where it raises now."""
    now = hint_of(base), hint_of(exponent)
    try:
        if None not in now:
            operator.pow(*now)
    except ArithmeticError:
        return MISSING
    if type(base) not in SYMBOLIC and 0 < base <= 1:
        if base < 1:
            promise(vm, operator.ge, exponent, math.log(sys.float_info.max) / math.log(base), _RANGE)
        return float(base) ** exponent
    if type(exponent) in SYMBOLIC and type(base) is torch.SymFloat and not is_unbacked(base):
        return fading_power(vm, base, exponent)
    if type(exponent) in SYMBOLIC or type(base) is not torch.SymFloat or not 0 < abs(exponent) <= 4:
        return MISSING
    if not is_unbacked(base) and base.node.hint is not None and base.node.hint <= 0:
        return MISSING  # no ordinary power now
    if exponent < 0:
        promise(vm, operator.gt if exponent % 1 else operator.ne, base, 0, _ZERO_POWER)
    elif exponent % 1:
        promise(vm, operator.ge, base, 0, _COMPLEX)
    if exponent > 1:
        promise(vm, operator.le, base, sys.float_info.max ** (1 / exponent), _RANGE)
    return base ** exponent


def fading_power(vm: VM, base: Any, exponent: Any) -> Any:
    """`beta ** step`, both of them numbers that change; that the base is one of 0 to 1 is a guard."""
    if not (0 < base.node.hint <= 1 and base > 0 and base <= 1):
        return MISSING
    logarithm = vm.torch_call(torch.mul, (vm.torch_call(torch.log, (boxed(vm, base),), None), exponent), None)
    promise_of(vm, operator.le, logarithm, math.log(sys.float_info.max), _RANGE)
    return base ** exponent


def record_float(vm: VM, function: Any, values: tuple[Any, ...], result: object) -> None:
    """From now on a node computes this very value, in the program's order."""
    recorder = vm.recorder
    arguments = tuple([recorder.to_node_arg(value) for value in values])
    spelled = _SPELLED.get(function)
    terms = [_terms(argument) for argument in arguments] if spelled is not None or function is _NEGATIVE else []
    simplified = function(*terms) if terms else None
    if spelled is not None and recorder.scope.data_dependent and (
            _is_regrouped(spelled, terms) or _size(simplified) < sum(
                _size(term) for term in terms if spelled is not FLOAT_MUL or term != -1)):
        made = vm.torch_call(spelled, values, None)
        number = vm.torch_call(torch.Tensor.item, (made,), None)
        node = recorder.to_node_arg(number)
    else:
        node = recorder.graph.create_node("call_function", function, arguments, {})
        node.meta["example_value"] = result
        if terms:
            node.meta["terms"] = simplified
    recorder.symbols.remember(result, node)


def _terms(argument: Any) -> sympy.Expr:
    """An argument as a term of symbols."""
    if type(argument) is fx.Node:
        return argument.meta.setdefault("terms", sympy.Dummy(real=True))
    return sympy.Float(argument) if type(argument) is float else sympy.Integer(argument)


def _is_regrouped(spelled: object, terms: list[sympy.Expr]) -> bool:
    """Whether sympy keeps no order of the operations: in a sum of sums, a product of products, a multiple of a sum."""
    if spelled is not FLOAT_MUL:
        return any(term.is_Add for term in terms)
    return any(term.is_Pow or term.is_Mul and sum(factor != -1 for factor in term.args) > 1 for term in terms) \
        or any(term.is_Add for term in terms) and any(term.is_Number and abs(term) != 1 for term in terms)


def _size(expression: sympy.Expr) -> int:
    """How many numbers and symbols stand in a term; those that were brought together are fewer than before."""
    if expression.is_Atom:
        return 1
    if expression.is_Pow and expression.exp.is_Integer:
        return abs(int(expression.exp)) * _size(expression.base)
    return sum(_size(part) for part in expression.args if not expression.is_Mul or part != -1)
