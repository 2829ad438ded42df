"""Arithmetic on floats, as nodes of the graph.   (a + b) - (a + b)  ->  stator::float_sub, not 0

In: an operation on open floats and its value.  Out: the node that computes it.  Compilers trace the graph again with
symbols, whose algebra takes the difference of equal floats for 0 (it is nan where they are infinite) and (f + 1e16) -
1e16 for f.  Where it would change the operation, an operator does it that they cannot look into.
"""

from __future__ import annotations

import operator
from typing import Any

import sympy
import torch
from torch import fx

from stator.graph.record.number_operators import FLOAT_ADD, FLOAT_MUL, FLOAT_SUB
from stator.interp.services import VM

_NEGATIVE = operator.neg
_SPELLED = {operator.add: FLOAT_ADD, operator.iadd: FLOAT_ADD, operator.sub: FLOAT_SUB, operator.isub: FLOAT_SUB,
            operator.mul: FLOAT_MUL, operator.imul: FLOAT_MUL}


def record_float(vm: VM, function: Any, values: tuple[Any, ...], result: Any) -> None:
    """From now on a node computes this very value, in the program's order."""
    recorder = vm.recorder
    arguments = tuple([recorder.to_node_arg(value) for value in values])
    spelled = _SPELLED.get(function)
    terms = [_terms(argument) for argument in arguments] if spelled is not None or function is _NEGATIVE else []
    simplified = function(*terms) if terms else None
    if spelled is not None and recorder.scope.data_dependent and _size(simplified) < _size_of_parts(spelled, terms):
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
    """What symbols make of an argument."""
    if type(argument) is fx.Node:
        return argument.meta.setdefault("terms", sympy.Dummy(real=True))
    return sympy.Float(argument) if type(argument) is float else sympy.Integer(argument)


def _size_of_parts(spelled: object, terms: list[sympy.Expr]) -> int:
    return sum(_size(term) for term in terms if spelled is not FLOAT_MUL or term != -1)


def _size(expression: sympy.Expr) -> int:
    """How many numbers and symbols stand in a term; those that were brought together are fewer than before."""
    if expression.is_Atom:
        return 1
    if expression.is_Pow and expression.exp.is_Integer:
        return abs(int(expression.exp)) * _size(expression.base)
    return sum(_size(part) for part in expression.args if not expression.is_Mul or part != -1)
