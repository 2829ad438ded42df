"""What autograd does with a graph that AOTAutograd does otherwise.   a graph  ->  whether no compiler may have it

AOTAutograd makes one backward of a whole graph: the first backward pass frees what all of its results would need.
Autograd itself frees what lies behind the one result, and another may still be differentiated.

It saves inputs as they are, and writes to them when the graph is done: where the derivative of such a write needs the
old value (`x.mul_(w)`), the backward pass would find the new one. And it leaves the memory of an input where it is.

Where a saved tensor is written to (`y = x * w; torch._foreach_add_([w], 1)`), the backward pass of autograd raises.
AOTAutograd has no version counters for some writes, and computes a gradient.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.graph.analysis.mutation import operator_name, storage_of, writes, written_storages

# In-place operations whose derivatives do not ask what was there before.
_FORGETFUL = frozenset("""
    add_ sub_ copy_ zero_ fill_ neg_ setitem __setitem__ iadd isub masked_fill_ index_copy_ index_add_ index_fill_
    index_put_ masked_scatter_ scatter_ scatter_add_ requires_grad_ detach_
""".split())
_MOVES = frozenset({"set_", "resize_", "resize_as_"})


def separate_histories(graph: fx.Graph) -> bool:
    """Whether two results can be differentiated that have no operation in common."""
    found = [behind(node) for node in output_nodes(graph) if node.op != "placeholder" and wants_grad(node)]
    return any(first.isdisjoint(second) for i, first in enumerate(found) for second in found[:i])


def output_nodes(graph: fx.Graph) -> list[fx.Node]:
    return next(node for node in reversed(graph.nodes) if node.op == "output").all_input_nodes


def behind(node: fx.Node) -> set[fx.Node]:
    """The operations that a backward pass from a result goes through."""
    seen: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each not in seen and each.op != "placeholder" and wants_grad(each):
            seen.add(each)
            waiting += each.all_input_nodes
    return seen


def wants_grad(node: fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("example_value"))
    with torch._C.DisableTorchFunction():
        return any(type(leaf) is FakeTensor and leaf.requires_grad for leaf in leaves)


def needs_old_values(graph: fx.Graph) -> bool:
    """Whether an input is written to so that its old value, or its old memory, matters to what comes after."""
    differentiable: set[int] | None = None
    for node in graph.nodes:
        if not writes(node):
            continue
        name = operator_name(node.target)
        if name in _MOVES:
            return True
        if name not in _FORGETFUL:
            if differentiable is None:
                fakes = [each.meta.get("example_value") for each in graph.find_nodes(op="placeholder")]
                differentiable = {storage_of(fake) for fake in fakes if with_history(fake)}
            if differentiable and not differentiable.isdisjoint(written_storages(node)):
                return True
    return False


def with_history(fake: FakeTensor) -> bool:
    """Whether autograd has a record of how a tensor came to be."""
    with torch._C.DisableTorchFunction():
        return type(fake) is FakeTensor and fake.requires_grad and not fake.is_leaf


def saves_written_tensors(graph: fx.Graph) -> bool:
    """Whether a backward pass from a result would find a saved tensor with another version than it had."""
    fakes = [leaf for node in output_nodes(graph) for leaf in pytree.tree_leaves(node.meta.get("example_value"))]
    with torch._C.DisableTorchFunction():
        try:
            waiting: list[Any] = [fake.grad_fn for fake in fakes if type(fake) is FakeTensor and fake.requires_grad]
        except RuntimeError:  # one of several views whose base was written to
            return True
        seen: set[Any] = set()
        while waiting:
            function = waiting.pop()
            if function is None or function in seen:
                continue
            seen.add(function)
            waiting += [each for each, _ in function.next_functions]
            cls: Any = type(function)
            for name in _saved_names(cls):
                try:
                    getattr(function, name)
                except RuntimeError as error:
                    if "modified by an inplace operation" in str(error):
                        return True
    return False


@functools.cache
def _saved_names(cls: type) -> list[str]:
    """Attributes of an autograd node that unpack saved tensors, which compares versions."""
    return [name for name in dir(cls) if name.startswith("_saved_") or name == "saved_tensors"]
