"""Sums of symbols, after two of them have become one.   (a + b) + c with a == b  ->  2*a + c

In: torch's addition of symbolic numbers.  Out: the same, asked for its short cut only where that is right.

torch notes on a number that it is a sum of different symbols, and adds another symbol by putting it among the terms.
The note stays when the sum has turned into something else: `a + b` is `2*a` after the guard a == b, whose parts are 2
and a, and is 15 after the guard a + b == 15, which has none. The short cut then gives `2 + a + c`, or `c`. So the note
is checked against what the sum is now. The correction is made once per process and changes no right answer of torch's.
"""

from __future__ import annotations

from typing import Any

import sympy
from torch.fx.experimental import sym_node

_add = sym_node._optimized_add


def is_sum_of_symbols(expression: object) -> bool:
    return isinstance(expression, sympy.Add) and all(part.is_symbol for part in expression.args)


def _checked_add(left: object, right: object, left_noted: bool = False, right_noted: bool = False) -> tuple[bool, Any]:
    return _add(left, right, left_noted and is_sum_of_symbols(left), right_noted and is_sum_of_symbols(right))


def correct_sums() -> None:
    sym_node._optimized_add = _checked_add
