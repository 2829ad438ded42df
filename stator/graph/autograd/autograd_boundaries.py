"""Operations that only autograd itself can do.   nn.Parameter(t), hooks on modules  ->  nodes between compiled pieces

In: what the program does to the record that autograd keeps.  Out: functions that nodes call.  A backend that runs the
nodes in order simply calls them; for every other one the graph is cut there (see backends/pieces), so that no compiler
sees them.  Some operations are seams because a compiler would only make them slow (`BETTER_CUT`): a graph that cannot
be cut there is compiled in one piece.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.node import has_side_effect
from torch.utils.hooks import BackwardHook

from stator.graph.analysis.mutation import writes_two_ways

_SEAMS: set[Any] = set()
BETTER_CUT = "better cut"  # the mark of a node that a compiler may have, if it must
_autograd: Any = torch._C._autograd


def seam(function: Callable[..., Any]) -> Callable[..., Any]:
    has_side_effect(function)
    _SEAMS.add(function)
    return function


def is_seam(node: fx.Node) -> bool:
    return node.op == "call_function" and (type(node.target) in (WatchModule, PushHooks) or node.target in _SEAMS) \
        or bool(node.meta.get("is_seam")) or writes_two_ways(node)  # functionalization mixes up what is written


def has_seams(graph: fx.Graph) -> bool:
    return any(map(is_seam, graph.nodes))


def must_be_cut(graph: fx.Graph) -> bool:
    return any(is_seam(node) and node.meta.get("is_seam") != BETTER_CUT for node in graph.nodes)


@seam
def new_parameter(data: torch.Tensor, requires_grad: bool) -> torch.nn.Parameter:
    return torch.nn.Parameter(data, requires_grad)


@seam
def retain_gradient(tensor: torch.Tensor) -> None:
    tensor.retain_grad()


class WatchModule:
    """The target of a node: what watches the gradients of one call of a module, for its full backward hooks."""

    __name__ = __qualname__ = "watch_module"

    def __init__(self, module: torch.nn.Module, hooks: tuple[Any, ...], pre_hooks: tuple[Any, ...]) -> None:
        self.module, self.hooks, self.pre_hooks = weakref.ref(module), hooks, pre_hooks

    def __call__(self) -> BackwardHook:
        return BackwardHook(self.module(), list(self.hooks), list(self.pre_hooks))


@seam
def through_input(watch: BackwardHook, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors among a module's arguments, such that autograd tells when their gradients are there."""
    return watch.setup_input_hook(given)  # type: ignore[no-untyped-call]


@seam
def through_output(watch: BackwardHook, made: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same for what the module returns."""
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


@seam
def pop_saved_tensors_hooks() -> None:
    _autograd._pop_saved_tensors_default_hooks()
