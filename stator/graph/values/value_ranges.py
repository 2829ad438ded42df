"""Comparisons that the range of an operand decides.   torch.rand([]) < 0.0  ->  False, whatever is drawn

In: a node of the graph that compares what `torch.rand` draws with a number, or such a comparison of its `item()`.
Out: the truth of it; UNKNOWN where the number lies inside the range.  Models skip layers at random with a probability
that is mostly zero: the draw stays in the graph, the branch is no branch.
"""

from __future__ import annotations

import operator
from typing import Any

import sympy
import torch
from torch import fx

from stator.shapes.environment import UNKNOWN

_LOW, _HIGH = 0.0, 1.0  # what is drawn lies between them; that it is never 1 is left open, as dtypes round
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_COMPARED: dict[Any, str] = {
    **{name: name for name in _MIRRORED}, **{f"__{name}__": name for name in _MIRRORED},
    **{getattr(owner, name): name for name in _MIRRORED for owner in (operator, torch)},
    torch.less: "lt", torch.greater: "gt", torch.less_equal: "le", torch.greater_equal: "ge",
}
_RELATIONS = {sympy.StrictLessThan: "lt", sympy.StrictGreaterThan: "gt", sympy.LessThan: "le", sympy.GreaterThan: "ge"}
_READING = frozenset({*_COMPARED, "item", torch.Tensor.item})


def decided(comparison: str, number: float) -> Any:
    """The truth of `drawn <comparison> number`, where it is the same at both ends of the range, and so in between."""
    lowest, highest = (getattr(operator, comparison)(end, number) for end in (_LOW, _HIGH))
    return lowest if lowest == highest else UNKNOWN


def of_comparison(node: fx.Node) -> Any:
    """What a node that compares a random tensor with a number answers."""
    comparison = _COMPARED.get(node.target) if node.op in ("call_function", "call_method") else None
    if comparison is None or node.kwargs or len(node.args) != 2:
        return UNKNOWN
    left, right = node.args
    if type(right) is fx.Node:
        left, right, comparison = right, left, _MIRRORED[comparison]
    if not is_drawn(left) or type(right) not in (int, float):
        return UNKNOWN
    return decided(comparison, right)  # type: ignore[arg-type]


def of_relation(relation: Any, definitions: dict[Any, tuple[fx.Node, Any]]) -> Any:
    """What a comparison of a random number, read with `item()`, answers."""
    comparison = _RELATIONS.get(type(relation))
    if comparison is None:
        return UNKNOWN
    left, right = relation.args
    if isinstance(right, sympy.Symbol):
        left, right, comparison = right, left, _MIRRORED[comparison]
    node, path = definitions.get(left, (None, ()))
    if node is None or path or node.target != "item" or not right.is_number or not is_drawn(node.args[0]):
        return UNKNOWN
    return decided(comparison, float(right))


def is_drawn(node: fx.Node) -> bool:
    """Whether a node is a draw that nothing has changed since: it is compared and read, and nothing else."""
    return type(node) is fx.Node and node.target is torch.rand and "out" not in node.kwargs \
        and all(user.target in _READING for user in node.users)
