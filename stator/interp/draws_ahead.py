"""Branches on random numbers.   if torch.rand([]) < p: continue   ->   the way taken, and a guard that draws ahead

In: a condition over draws from torch's CPU stream.  Out: its truth.  One guard for all such conditions of a trace makes
the draws of the call in their order, and puts the state of the stream back: draws that decide as they are, others, such
as those of dropout, on memory of the same layout.  Where a draw takes from the stream what no layout shows, or a
compiler draws from a stream of its own, the truth is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils import _pytree as pytree

from stator import _hook
from stator.graph.analysis.mutation import reached, storage_of, writes, written_storages
from stator.graph.services import Recorder
from stator.graph.values.branch_guards import plainly, written
from stator.native.torch_ops import draws_random_numbers, torch_leaf
from stator.shapes.environment import UNKNOWN

_WORK_LIMIT = 1 << 22  # elements that a guard may draw
_CALLS = ("call_function", "call_method")
_NAMESPACES = ("aten.", "prims.", "stator.")
_MODULES = frozenset({"_operator", "operator", "math", "builtins", "torch", "stator"})
MOST_OUTCOMES = 3  # patterns of truths that one site is captured for
_F = torch.nn.functional
_FACTORIES = frozenset({torch.rand, torch.randn, torch.randint, torch.randperm})
# They take from the stream what the layouts of their arguments and results show.
_BY_LAYOUT = _FACTORIES | {
    torch.rand_like, torch.randn_like, torch.dropout, torch.dropout_, torch.alpha_dropout, torch.feature_dropout,
    torch.native_dropout, _F.dropout, _F.alpha_dropout, _F.dropout1d, _F.dropout2d, _F.dropout3d,
    _F.feature_alpha_dropout, _F.scaled_dot_product_attention, torch.Tensor.uniform_, torch.Tensor.normal_,
    "uniform_", "normal_"}


class _Refused(Exception):
    """A draw cannot be made ahead."""


class _Unfilled:
    """Memory of a layout, for an argument whose values do not matter."""

    def __init__(self, fake: torch.Tensor) -> None:
        self.sizes, self.strides, self.dtype = tuple(fake.shape), tuple(fake.stride()), fake.dtype

    def value(self, found: list[Any]) -> torch.Tensor:
        return torch.empty_strided(self.sizes, self.strides, dtype=self.dtype)


class _Result:
    """The result of an earlier call."""

    def __init__(self, place: int) -> None:
        self.place = place

    def value(self, found: list[Any]) -> object:
        return found[self.place]


class DrawsAhead:
    """Conditions of one trace over random numbers, and their truths."""

    def __init__(self) -> None:
        self.outcomes: set[str] = set()  # of earlier captures of the site
        self.truths: dict[fx.Node, bool] = {}
        self.refused: set[fx.Node] = set()
        self.guard = Truths([], [])

    def truth_of(self, recorder: Recorder, root: fx.Node) -> object:
        if root in self.truths:
            return self.truths[root]
        if root in self.refused or len(self.outcomes) >= MOST_OUTCOMES:
            return UNKNOWN
        try:
            with unset_fake_temporarily(), torch._C.DisableTorchFunction():
                return self._decided(recorder, root)
        except _Refused:
            self.refused.add(root)
            return UNKNOWN

    def _decided(self, recorder: Recorder, root: fx.Node) -> bool:
        backend = recorder.backend
        if recorder.scope.enclosing is not None or not (backend.in_order or backend.cut_at_errors) \
                or torch.is_autocast_enabled("cpu"):
            raise _Refused
        roots = [*self.truths, root]
        wanted = reached(roots, lambda node: node.all_input_nodes)
        if not any(node.target in _FACTORIES for node in wanted):
            raise _Refused
        places: dict[fx.Node, int] = {}
        calls = list(planned(recorder.graph, wanted, places))
        guard = Truths(calls, [places[each] for each in roots])
        token = _hook.pause()
        try:
            found = guard.found()
        except Exception as error:
            raise _Refused from error
        finally:
            _hook.resume(token)
        if found[:-1] != list(self.truths.values()):
            raise _Refused
        self.guard, self.truths[root] = guard, found[-1]
        return found[-1]

    def add_guard(self, guard_call: Callable[..., None]) -> None:
        if self.truths:
            pattern = written(self.truths.values())
            self.outcomes.add(pattern)
            guard_call(self.guard, pattern)


def planned(graph: fx.Graph, wanted: set[fx.Node], places: dict[fx.Node, int]) -> Iterator[tuple[Any, Any, Any]]:
    """The calls that a guard makes: nodes behind the conditions, and every draw before the last of them."""
    waiting, work, count = len(wanted), 0, 0
    read = {storage_of(leaf) for node in wanted for leaf in tensors_of(node)}
    for node in graph.nodes:
        is_wanted = node in wanted
        waiting -= is_wanted
        draws = node.op in _CALLS and draws_random_numbers(node.target)
        if is_wanted and node.op not in _CALLS or not _is_known(node) or writes(node) and (
                is_wanted or not read.isdisjoint(written_storages(node))):
            raise _Refused
        if draws or is_wanted:
            fakes = [leaf for each in (node, *node.all_input_nodes) for leaf in tensors_of(each)]
            work += sum(leaf.numel() for leaf in fakes)
            if not all(map(_is_plain, fakes)) or draws and not _may_be_made(node) or work > _WORK_LIMIT:
                raise _Refused
            on_cpu = {leaf.device.type == "cpu" for leaf in fakes}
            if is_wanted and on_cpu != {True}:
                raise _Refused
            if True in on_cpu:  # else: the stream of another device
                yield (getattr(torch.Tensor, node.target) if node.op == "call_method" else node.target,
                       *fx.map_arg((node.args, node.kwargs), lambda each: _argument(each, places)))
                if is_wanted:
                    places[node] = count
                count += 1
        if not waiting:
            return


def tensors_of(node: fx.Node) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(node.meta.get("example_value")) if isinstance(leaf, torch.Tensor)]


def _is_known(node: fx.Node) -> bool:
    """False for calls that may draw unseen: of inner graphs, checkpoints, functions that torch does not define."""
    if node.op != "call_function":
        return node.op != "call_module"
    if "recompute" in node.meta or any(each.op == "get_attr" for each in node.all_input_nodes):
        return False
    if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(node.target).startswith(_NAMESPACES)
    module = getattr(node.target, "__module__", None) or ""
    return torch_leaf(node.target) or module.partition(".")[0] in _MODULES


def _is_plain(fake: torch.Tensor) -> bool:
    return type(fake) is FakeTensor and fake.layout is torch.strided and all(
        type(size) is int for size in (*fake.shape, *fake.stride()))


def _may_be_made(node: fx.Node) -> bool:
    return node.target in _BY_LAYOUT and node.kwargs.get("generator") is None and "out" not in node.kwargs


def _argument(node: fx.Node, places: dict[fx.Node, int]) -> _Result | _Unfilled:
    if node in places:
        return _Result(places[node])
    fake = node.meta.get("example_value")
    if type(fake) is not FakeTensor or fake.device.type != "cpu":
        raise _Refused
    return _Unfilled(fake)


class Truths:
    """A guard: the conditions, computed with the random numbers that the call is about to draw."""

    __name__ = __qualname__ = "random_branches"

    def __init__(self, calls: list[tuple[Any, Any, Any]], roots: list[int]) -> None:
        self.calls, self.roots = calls, roots

    def __repr__(self) -> str:
        return "<truths of branches on random numbers>"

    def __call__(self) -> str:
        return written(self.found())

    def found(self) -> list[bool]:
        stream = torch.default_generator
        state = stream.get_state()
        found: list[Any] = []
        try:
            with plainly():
                for function, args, kwargs in self.calls:
                    args, kwargs = fx.node.map_aggregate((args, kwargs), lambda each: each.value(found)
                                                         if type(each) in (_Result, _Unfilled) else each)
                    found.append(function(*args, **kwargs))
            return [bool(found[root]) for root in self.roots]
        finally:
            stream.set_state(state)
