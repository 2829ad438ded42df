"""Where compilers and autograd differ.   nn.Parameter(t), hooks on modules  ->  nodes between compiled pieces

A backend that runs the nodes in order calls these functions; for every other one the graph is cut there
(backends/pieces).  A graph that cannot be cut at a `BETTER_CUT` is compiled in one piece.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import has_side_effect
from torch.utils import _pytree as pytree
from torch.utils.hooks import BackwardHook

from stator.graph.analysis import mutation
from stator.ranks.buckets import BUCKET

_BOUNDARIES: set[Any] = set()
BOUNDARY = "is_boundary"  # the key of the mark in the meta of a node at which a graph is cut for compilers
BETTER_CUT = "better cut"  # the mark of a node that a compiler may have, if it must
_autograd: Any = torch._C._autograd
# In-place operations whose derivatives do not depend on the old value.
_FORGETFUL = frozenset("""
    add_ sub_ copy_ zero_ fill_ neg_ setitem __setitem__ iadd isub masked_fill_ index_copy_ index_add_ index_fill_
    index_put_ masked_scatter_ scatter_ scatter_add_ requires_grad_ detach_
""".split())
CONSUMED = "consumed"  # in the meta of a node: the error of a second backward pass
WRITTEN, FREED = "modified by an inplace operation", "backward through the graph a second time"  # errors of autograd
AccumulateGrad = torch._C._functions.AccumulateGrad
_MOVES = frozenset({"set_", "resize_", "resize_as_"})


class InOnePiece(Exception):
    """The graph cannot be cut where it would have to be."""


def boundary(function: Callable[..., Any]) -> Callable[..., Any]:
    has_side_effect(function)
    _BOUNDARIES.add(function)
    return function


def is_boundary(node: fx.Node) -> bool:
    if node.op == "call_function" and (type(node.target) in (WatchModule, PushHooks) or node.target in _BOUNDARIES):
        return True
    return bool(node.meta.get(BOUNDARY)) or mutation.writes_two_ways(node)  # functionalization mixes both writes


def has_boundaries(graph: fx.Graph) -> bool:
    return any(is_boundary(node) or BUCKET in node.meta for node in graph.nodes)


def must_be_cut(graph: fx.Graph) -> bool:
    return any(is_boundary(node) and node.meta.get(BOUNDARY) != BETTER_CUT for node in graph.nodes)


def ancestors(nodes: list[fx.Node]) -> set[fx.Node]:
    return mutation.reached(nodes, lambda node: node.all_input_nodes)


@boundary
def new_parameter(data: torch.Tensor, requires_grad: bool) -> torch.nn.Parameter:
    return torch.nn.Parameter(data, requires_grad)


@boundary
def retain_gradient(tensor: torch.Tensor) -> None:
    tensor.retain_grad()


class WatchModule:
    """The target of a node: what watches the gradients of one call of a module, for its full backward hooks."""

    __name__ = __qualname__ = "watch_module"

    def __init__(self, module: torch.nn.Module, hooks: tuple[Any, ...], pre_hooks: tuple[Any, ...]) -> None:
        self.module, self.hooks, self.pre_hooks = weakref.ref(module), hooks, pre_hooks

    def __call__(self) -> BackwardHook:
        return BackwardHook(self.module(), list(self.hooks), list(self.pre_hooks))


@boundary
def through_input(watch: BackwardHook, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors among a module's arguments, such that autograd calls back when their gradients are there."""
    return watch.setup_input_hook(given)  # type: ignore[no-untyped-call]


@boundary
def through_output(watch: BackwardHook, made: tuple[Any, ...]) -> tuple[Any, ...]:
    return watch.setup_output_hook(made)  # type: ignore[no-untyped-call]


class PushHooks:
    """The target of a node: hooks on what autograd saves, from here to the node that pops them."""

    __name__ = __qualname__ = "push_saved_tensors_hooks"

    def __init__(self, pack: object, unpack: object) -> None:
        self.pack, self.unpack = pack, unpack

    def __call__(self) -> None:
        _autograd._push_saved_tensors_default_hooks(self.pack, self.unpack)

    def leave(self) -> None:
        """After a graph that pushes them has failed, between these two nodes or not."""
        while _autograd._saved_tensors_hooks_is_enabled() and self._are_on_top():
            _autograd._pop_saved_tensors_default_hooks()

    def _are_on_top(self) -> bool:
        top = _autograd._top_saved_tensors_default_hooks(True)
        return top is not None and top[0] is self.pack and top[1] is self.unpack


@boundary
def pop_saved_tensors_hooks() -> None:
    _autograd._pop_saved_tensors_default_hooks()


def separate_histories(graph: fx.Graph) -> bool:
    """Whether two results can be differentiated that have no operation in common."""
    found = [behind(node) for node in output_nodes(graph) if node.op != "placeholder" and wants_grad(node)]
    return any(first.isdisjoint(second) for i, first in enumerate(found) for second in found[:i])


def output_nodes(graph: fx.Graph) -> list[fx.Node]:
    return next(node for node in reversed(graph.nodes) if node.op == "output").all_input_nodes


def behind(node: fx.Node) -> set[fx.Node]:
    """The operations that a backward pass from a result goes through."""
    return mutation.reached([node], lambda each: [one for one in each.all_input_nodes
                                                  if one.op != "placeholder" and wants_grad(one)])


def wants_grad(node: fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("example_value"))
    with torch._C.DisableTorchFunction():
        return any(type(leaf) is FakeTensor and leaf.requires_grad for leaf in leaves)


def needs_old_values(graph: fx.Graph) -> bool:
    """Whether an input is written to so that its old value, or its old memory, matters to what comes after."""
    differentiable: set[int] | None = None
    for node in graph.nodes:
        if not mutation.writes(node):
            continue
        name = mutation.operator_name(node.target)
        if name in _MOVES:
            return True
        if name not in _FORGETFUL:
            if differentiable is None:
                fakes = [each.meta.get("example_value") for each in graph.find_nodes(op="placeholder")]
                differentiable = {mutation.storage_of(fake) for fake in fakes if with_history(fake)}
            if differentiable and not differentiable.isdisjoint(mutation.written_storages(node)):
                return True
    return False


def with_history(fake: FakeTensor) -> bool:
    with torch._C.DisableTorchFunction():
        return type(fake) is FakeTensor and fake.requires_grad and not fake.is_leaf


def saves_written_tensors(graph: fx.Graph) -> bool:
    """Whether a backward pass from a result would find a saved tensor with another version than it had."""
    fakes = [leaf for node in output_nodes(graph) for leaf in pytree.tree_leaves(node.meta.get("example_value"))]
    try:
        return bool(error_of_saved([fake for fake in fakes if type(fake) is FakeTensor], WRITTEN))
    except RuntimeError:  # one of several views whose base was written to
        return True


def error_of_saved(fakes: list[FakeTensor], text: str) -> str:
    """The error with this text that a backward pass from tensors meets where it unpacks what autograd has saved."""
    with torch._C.DisableTorchFunction():
        for function in functions_behind(fakes):
            cls: Any = type(function)
            for name in saved_names(cls):
                try:
                    getattr(function, name)
                except RuntimeError as error:
                    if text in str(error):
                        return str(error)
    return ""


def functions_behind(fakes: Sequence[torch.Tensor]) -> dict[Any, None]:
    """The record of autograd behind tensors, in the order of the walk."""
    waiting: list[Any] = [fake.grad_fn for fake in fakes if fake.requires_grad]
    seen: dict[Any, None] = {}
    while waiting:
        function = waiting.pop()
        if function is not None and function not in seen:
            seen[function] = None
            waiting += [each for each, _ in function.next_functions]
    return seen


@functools.cache
def saved_names(cls: type) -> list[str]:
    """Attributes of an autograd node that unpack saved tensors, which compares versions."""
    return [name for name in dir(cls) if name.startswith("_saved_") or name == "saved_tensors"]


class Remembered(torch.autograd.Function):
    """Gives a known fake result the history that F.apply would give it; `gradients` computes those of `inputs`."""

    @staticmethod
    def forward(ctx: Any, plan: Any, *inputs: object) -> Any:  # type: ignore[override]
        output, dirty, constant, ctx.gradients, saved = (*plan, None, ())[:5]
        ctx.mark_dirty(*dirty)
        ctx.mark_non_differentiable(*constant)
        ctx.save_for_backward(*saved)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: object) -> tuple[torch.Tensor | None, ...]:
        if ctx.gradients is None or torch.is_grad_enabled():  # which gradients of gradients there are is not known
            raise NotImplementedError("through a branch, or twice through an autograd.Function or a checkpoint")
        _ = ctx.saved_tensors
        return None, *ctx.gradients(*grads)


@functools.cache
def remembered(name: str) -> type[Remembered]:
    """`Remembered` whose nodes are called as those of an autograd.Function of this name."""
    return type(name, (Remembered,), {})


class ConsumedHistory(torch.autograd.Function):
    """Gives a result a history whose backward pass raises: one in the graph has consumed it."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, text: str, *inputs: torch.Tensor) -> Any:  # type: ignore[override]
        ctx.text = text
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *grads: object) -> None:
        raise RuntimeError(ctx.text)
