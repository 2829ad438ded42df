"""Float arithmetic that may raise.   1 / t.item(), 0.9 ** t.item()  ->  a number of the graph, and what it promises

Python raises where a divisor is zero or a power overflows, and answers a negative number to a fractional power with a
complex one; compilers give infinities and NaN.  So the graph asserts the condition under which both agree.
"""

from __future__ import annotations

import math
import operator
import sys
from typing import Any

import torch

from stator.interp.lookup import MISSING
from stator.interp.runtime_asserts import Assertion
from stator.interp.services import VM
from stator.interp.tracebacks import places_from
from stator.shapes.symbolic_values import SYMBOLIC, as_integer, is_unbacked

_COMPARES = {operator.ne: torch.ne, operator.ge: torch.ge, operator.gt: torch.gt, operator.le: torch.le}
_ZERO = ZeroDivisionError("float division by zero")
_ZERO_POWER = ZeroDivisionError("0.0 cannot be raised to a negative power")
_RANGE = OverflowError(34, "Numerical result out of range")
_COMPLEX = ArithmeticError("a negative number to a fractional power, which is complex")


def boxed(vm: VM, value: Any) -> Any:
    """A number as a tensor of the graph."""
    one = vm.torch_call(torch.ones, ((),), {"dtype": torch.float64, "device": "cpu"})
    return vm.torch_call(torch.mul, (one, value), None)


def promise(vm: VM, compare: object, value: object, bound: float, error: Exception) -> None:
    """The graph asserts `compare(value, bound)`; where that fails, the program raises `error`."""
    # Asked as a number, it would become a guard; and of numbers that only the graph knows, Inductor (torch 2.11) drops
    # assertions about floats.
    promise_of(vm, compare, boxed(vm, value), bound, error)


def promise_of(vm: VM, compare: Any, tensor: Any, bound: float, error: Exception) -> None:
    text = f"stator assertion {len(vm.residual.assertions)}"
    vm.residual.assertions.append(Assertion(text, type(error), error.args, places_from(vm.frame)))
    held = vm.torch_call(_COMPARES[compare], (tensor, bound), None)
    vm.torch_call(torch.ops.aten._assert_async.msg, (held, text), None)


def quotient(vm: VM, dividend: object, divisor: Any) -> Any:
    """A division by a float that may come to be zero; MISSING where it is zero now."""
    if not is_unbacked(divisor) and divisor.node.hint == 0:
        return MISSING
    promise(vm, operator.ne, divisor, 0, _ZERO)
    return as_integer(dividend) / divisor


def power(vm: VM, base: Any, exponent: Any) -> Any:
    """A power of floats, one of them a constant; MISSING where nothing can be promised of it."""
    if type(base) not in SYMBOLIC and 0 < base <= 1:
        if base < 1:
            promise(vm, operator.ge, exponent, math.log(sys.float_info.max) / math.log(base), _RANGE)
        return float(base) ** exponent
    if type(exponent) in SYMBOLIC and type(base) is torch.SymFloat and not is_unbacked(base):
        return fading_power(vm, base, exponent)
    if type(exponent) in SYMBOLIC or type(base) is not torch.SymFloat or not 0 < abs(exponent) <= 4:
        return MISSING
    if not _may(base, exponent):
        return MISSING
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


def zero_times(vm: VM, value: Any, zero: Any) -> Any:
    """0 * f is 0 for symbols; the graph's own arithmetic knows of -0.0, infinities and NaN."""
    return vm.torch_call(torch.mul, (boxed(vm, value), zero), None)


def _may(base: Any, exponent: object) -> bool:
    """Whether the power is an ordinary one now (of an unknown base: is taken to be)."""
    hint = None if is_unbacked(base) else base.node.hint
    return hint is None or hint > 0
