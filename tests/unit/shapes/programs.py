"""Random integer programs over sizes, as text.   draw  ->  def program(x, n): ... return path, out, n, x * 1

Every branch notes which way it went in `path`, so that two calls take the same trace exactly when their paths agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st

ATOMS = ("a", "b", "n", "x.numel()", "len(x)", "x.shape[1]", "x.stride(0)", "x.dim()", "-3", "0", "1", "2", "5", "7")
COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")
# {0}, {1} and {2} are expressions; {k} is a small positive number, {c} a comparison.
FORMS = (
    "({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} // {k})", "({0} % {k})", "min({0}, {1})", "max({0}, {1})",
    "abs({0})", "divmod({0}, {k})[0]", "divmod({0}, {k})[1]", "sum([{0}, {1}, {2}])", "math.ceil({0} / {k})",
    "math.floor({0} / {k})", "int({0} / {k})", "round({0} / 2)", "-{0}", "(({0}) ** 2)", "len(range({0}))",
    "({0} // ({1} * {1} + 1))", "len([0] * ({0} % 9))", "({0} >> 1)", "math.isqrt(abs({0}))", "int({0} {c} {1})",
    "({0} if took({1} {c} {2}) else {1})", "(({0} {c} {1}) + ({1} {c} {2}))", "math.prod([{0}, 2])",
)
STATEMENTS = (
    "n = {0}",
    "if took({0} {c} {1}):\n        n = n + {2}\n    else:\n        x = x + 1",
    "out.append({0})",
    "x = x[: max(1, {0} % 4)]",
    "out.append(x.sum() * ({0}))",
    "out.append(x.reshape(-1)[{0} % 2:].shape)",
    "out.append(torch.zeros(abs({0}) % 11 + 1).sum() + {1})",
    "for i in range({0} % 4):\n        x = x + i",
    "out.append((isinstance({0}, int), type({0}) is int, {0} == {1}))",
)
HEAD = """def program(x, n):
    path, out = [], []
    def took(truth):
        if truth:
            path.append("yes")
        else:
            path.append("no")
        return truth
    a, b = x.shape
"""


@st.composite
def expressions(draw: Callable[..., Any], depth: int = 3) -> str:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(ATOMS))
    form = draw(st.sampled_from(FORMS))
    return filled(draw, form, depth - 1)


def filled(draw: Callable[..., Any], form: str, depth: int) -> str:
    parts = [draw(expressions(depth=depth)) if f"{{{i}}}" in form else "" for i in range(3)]
    return form.format(*parts, k=draw(st.sampled_from((2, 3, 4, 7))), c=draw(st.sampled_from(COMPARISONS)))


@st.composite
def programs(draw: Callable[..., Any]) -> str:
    lines = [filled(draw, draw(st.sampled_from(STATEMENTS)), 2) for _ in range(draw(st.integers(2, 5)))]
    body = "\n".join(f"    {line}" for line in lines)
    return f"{HEAD}{body}\n    return path, out, n, x * 1\n"


def build(text: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {"math": math, "torch": torch}
    exec(compile(text, "<integer program>", "exec"), namespace)  # noqa: S102  our own text
    return namespace["program"]
