"""Numbers of the graph, computed by operators of their own.   k[:, end:end + 8], end a tensor  ->  stator::slice_bound

In: the place where a slice begins or ends; a number that a tensor on the CPU holds plus one that is known; two floats
that symbols would simplify (see interp/numbers/float_arithmetic).  Out: a number of the graph, or a float in a tensor.

As operations on tensors of one element, which these could be, a compiler for another device would have to make kernels
for the CPU of them: Inductor then asks which instructions the CPU has, which takes it a minute.

The first argument is a tensor because compilers ask on which device an operator runs.  What they compute stands in
csrc/number_operators.cpp.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

import stator._core  # noqa: F401  (it defines the operators)
from stator.graph.services import Recorder
from stator.graph.values.input_items import SUMS
from stator.graph.values.known_values import NotKnown

SLICE_BOUND = torch.ops.stator.slice_bound.default
ITEM_OF_SUM = torch.ops.stator.item_of_sum.default
FLOAT_ADD, FLOAT_SUB = torch.ops.stator.float_add.default, torch.ops.stator.float_sub.default
FLOAT_MUL = torch.ops.stator.float_mul.default
LARGEST = 1 << 62  # of a number that is added: minus it fits in 64 bits as well


def _fake_bound(origin: torch.Tensor, place: object, size: object, least: object) -> Any:
    """A slice bound as Python reads it: negative from the end, never beyond either end, nor below `least`."""
    bound = torch.library.get_ctx().new_dynamic_size()
    torch._check(bound >= least)
    torch._check(bound <= size)
    return bound


def _fake_item(element: torch.Tensor, number: object) -> Any:
    return torch.library.get_ctx()._shape_env.create_unbacked_symint()


def _fake_float(left: object, right: object) -> torch.Tensor:
    return torch.empty((), dtype=torch.float64, device="cpu")


torch.library.register_fake("stator::slice_bound", _fake_bound)
for _name in ("float_add", "float_sub", "float_mul"):
    torch.library.register_fake(f"stator::{_name}", _fake_float)
torch.library.register_fake("stator::item_of_sum", _fake_item)


def item_of_sum(recorder: Recorder, fake: FakeTensor) -> Any:
    """The number in a sum of an element and a constant, without the tensor in between; None where it is none."""
    if recorder.scope.enclosing is not None or not recorder.scope.data_dependent \
            or recorder.items.number_of(fake) is not None:
        return None
    node = recorder.node_of(fake)
    try:
        with torch._C.DisableTorchFunction():
            found = _sum_of(node)
            if found is None or recorder.known.slice_of(node)[1]:
                return None  # what was written to since holds another number by now
    except NotKnown:
        return None
    place = recorder.graph, node
    if place not in recorder.slice_bounds:
        recorder.slice_bounds[place] = recorder.call(ITEM_OF_SUM, found, {})
    return recorder.slice_bounds[place]


def element_behind(recorder: Recorder, number: Any) -> FakeTensor | None:
    """The tensor out of which the graph reads a number."""
    if recorder.scope.enclosing is not None or type(number) is not torch.SymInt:
        return None
    node, path = recorder.symbols.definitions.get(number.node.expr, (None, ()))
    return None if node is None or path else _fake_of(node.args[0])


def _sum_of(node: fx.Node) -> tuple[FakeTensor, int] | None:
    """The element and the constant that a node adds, where both it and the element are 64-bit numbers on the CPU."""
    name = node.target if type(node.target) is str else getattr(node.target, "__name__", "")
    sign = SUMS.get(name)
    if sign is None or node.kwargs or len(node.args) != 2 or not _is_number(_fake_of(node)):
        return None
    element, number = node.args
    if sign == 1 and type(element) is int:
        element, number = number, element
    fake = _fake_of(element)
    if fake is None or type(number) is not int or abs(number) > LARGEST or not _is_number(fake):
        return None
    return fake, sign * number


def _fake_of(node: fx.Node) -> FakeTensor | None:
    made = node.meta.get("example_value") if type(node) is fx.Node else None
    return made if type(made) is FakeTensor else None


def _is_number(made: FakeTensor | None) -> bool:
    return made is not None and made.dtype is torch.int64 and made.device.type == "cpu" and made.dim() == 0
