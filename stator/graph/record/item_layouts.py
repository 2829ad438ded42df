"""Strides of dimensions of one item: kernels choose them, fakes guess.   (x * 2).stride()  ->  strides, or a Break"""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.analysis.step_functions import GRADIENTS
from stator.graph.services import Recorder

_LAID_OUT = frozenset({*GRADIENTS, torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})


def require_known_strides(recorder: Recorder, fake: FakeTensor, dim: object) -> None:
    """Kernels give dimensions of one item other strides than their fakes, unless everything lies in order."""
    singles = [place for place, size in enumerate(fake.shape) if type(size) is int and size == 1]
    if not singles or type(dim) is int and dim % fake.dim() not in singles:
        return
    node, root, memory = recorder.node_of(fake), fake, recorder.propagation.memory_behind(fake)
    while (behind := next((each for each in node.all_input_nodes if type(value := each.meta.get("example_value"))
                           is FakeTensor and recorder.propagation.memory_behind(value) == memory), None)) is not None:
        node, root = behind, behind.meta["example_value"]
    if laid_out_as_eager(node):
        return
    given = [each.meta.get("example_value") for each in node.all_input_nodes]
    known = [root, *(each for each in given if type(each) is FakeTensor and has_single_items(each))]
    if node.op != "placeholder" and not all(map(lies_in_order, known)):
        raise Break("SB017", "the strides of a tensor with a dimension of one item")


def laid_out_as_eager(node: fx.Node) -> bool:
    """Recurrent layers have a rule for the layout of each case; gradients are laid out as their leaves."""
    maker = node.all_input_nodes[0] if node.target is operator.getitem and node.all_input_nodes else node
    return maker.target in _LAID_OUT


def has_single_items(fake: FakeTensor) -> bool:
    return any(type(size) is int and size == 1 for size in fake.shape)


def lies_in_order(fake: FakeTensor) -> bool:
    """Whether each stride is the product of the sizes behind it, also of single items."""
    size: int | torch.SymInt = 1
    for extent, stride in zip(reversed(fake.shape), reversed(fake.stride()), strict=True):
        both = [each.node.expr if isinstance(each, torch.SymInt) else each for each in (stride, size)]
        if both[0] != both[1]:
            return False
        size = size * extent
    return True
