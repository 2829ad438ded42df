"""Relations between sizes are told as a user would write them."""

from __future__ import annotations

import pytest
import sympy
from torch.utils._sympy import functions as fs

from stator.shapes.symbolic_values import UserPrinter

N, F = sympy.Symbol("n", integer=True), sympy.Symbol("f")


@pytest.mark.parametrize(("expression", "text"), [
    (fs.FloorToInt(F), "math.floor(f)"), (fs.CeilToInt(F), "math.ceil(f)"), (fs.TruncToInt(F), "int(f)"),
    (fs.ToFloat(N), "float(n)"), (fs.OpaqueUnaryFn_sqrt(N), "math.sqrt(n)"), (fs.Min(N, 3), "min(3, n)"),
    (fs.Max(N, 3), "max(3, n)"),
], ids=str)  # fmt: skip
def test_functions_have_their_names_in_python(expression: sympy.Expr, text: str) -> None:
    assert UserPrinter().doprint(expression) == text
