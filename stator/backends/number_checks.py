"""Assertions about numbers, for backends that run the nodes one by one.   assert_async(ge(ones(()) * n, 0))  ->  n >= 0

A comparison of numbers in Python takes the place of four operations on tensors (see interp/numbers/float_arithmetic).
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import fx
from torch.fx.node import has_side_effect

_ASSERT, _ASSERT_SCALAR = torch.ops.aten._assert_async.msg, torch.ops.aten._assert_scalar.default
_COMPARES: dict[object, Callable[[float, float], bool]] = {
    torch.ne: operator.ne, torch.ge: operator.ge, torch.gt: operator.gt, torch.le: operator.le}
_NUMBERS = (torch.SymFloat, torch.SymInt)


def check_in_python(graph: fx.Graph) -> bool:
    """Replace such assertions; whether there were any."""
    found = False
    for node in list(graph.find_nodes(op="call_function", target=_ASSERT_SCALAR)):
        node.target, found = check, True
    for node in list(graph.find_nodes(op="call_function", target=_ASSERT)):
        compared = _compared_number(node.args[0])
        if compared is None:
            continue
        with graph.inserting_before(node):
            held = graph.call_function(_COMPARES[node.args[0].target], compared)
            graph.call_function(check, (held, node.args[1])).meta.update(node.meta)
        _erase_unused(graph, node)
        found = True
    return found


def check(condition: bool, text: str) -> None:
    if not condition:
        raise RuntimeError(text)


has_side_effect(check)


def _compared_number(node: object) -> tuple[fx.Node, float] | None:
    """The number and the bound of `compare(ones(()) * number, bound)`."""
    if not isinstance(node, fx.Node) or node.target not in _COMPARES or type(node.args[1]) not in (int, float):
        return None
    box = node.args[0]
    if not isinstance(box, fx.Node) or box.target is not torch.mul or len(box.all_input_nodes) != 2:
        return None
    one, number = box.args
    if one.target is not torch.ones or one.args != ((),) or one.kwargs.get("dtype") is not torch.float64 \
            or not isinstance(number.meta.get("example_value"), _NUMBERS):
        return None
    return number, node.args[1]


def _erase_unused(graph: fx.Graph, node: fx.Node) -> None:
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if not each.users and each.target in (_ASSERT, torch.mul, torch.ones, *_COMPARES):
            waiting += each.all_input_nodes
            graph.erase_node(each)
