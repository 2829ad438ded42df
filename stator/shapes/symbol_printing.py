"""Expressions over symbols, in Python.   2*s0 >= FloorDiv(s1, 2)  ->  2*x.size(0) >= y.size(0) // 2"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._sympy.printers import PythonPrinter


def _called(name: str) -> Callable[..., Any]:
    return lambda self, expr: f"{name}({', '.join(map(self._print, expr.args))})"


class UserPrinter(PythonPrinter):  # type: ignore[misc]
    """Expressions as a user would write them."""

    _print_ToFloat = _called("float")
    _print_TruncToInt = _called("int")
    _print_FloorToInt = _called("math.floor")
    _print_CeilToInt = _called("math.ceil")
    _print_OpaqueUnaryFn_sqrt = _called("math.sqrt")
    _print_RoundToInt = _called("round")
    _print_Abs = _called("abs")
    _print_Min = _called("min")
    _print_Max = _called("max")
