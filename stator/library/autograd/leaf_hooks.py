"""Hooks that the accumulation into a leaf calls.   p.register_hook(f), p.register_post_accumulate_grad_hook(f)

In: the leaves behind a backward pass.  Out: their hooks under guards, and the calls of them, interpreted on the new
gradients in the order of the engine.  Hooks that raise, that write to a gradient, or that write to what the rest of the
pass reads make the pass a graph break.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import Node
from torch.utils import _pytree as pytree

from stator import _core
from stator.breaks import Break
from stator.graph.analysis import autograd_boundaries as boundaries
from stator.graph.analysis.mutation import storage_of, writes, written_storages
from stator.heap.tracker import VariableTracker
from stator.host.hook_handles import handle_numbers_kept
from stator.interp.frame import Raised
from stator.interp.tensors.tensor_bookkeeping import behind_autograd
from stator.interp.vm import VM
from stator.source import CallOf, Pinned

_BEFORE, _AFTER = "register_hook", "register_post_accumulate_grad_hook"
_DICTS: dict[str, Callable[..., Any]] = {
    _BEFORE: torch._C.TensorBase._backward_hooks.__get__,  # type: ignore[attr-defined]
    _AFTER: torch._C.TensorBase._post_accumulate_grad_hooks.__get__}  # type: ignore[attr-defined]


class LeafHooks:
    """Hooks of the leaves of one backward pass, and the order in which the engine reaches these leaves."""

    def __init__(self, vm: VM, what: str, leaves: list[FakeTensor]) -> None:
        self.vm, self.what = vm, what
        self.leaves = leaves
        self.order: list[int] = []  # places of leaves
        trackers = [vm.heap.by_standin.get(id(leaf)) for leaf in leaves]
        self.hooks = [(listed_hooks(vm, leaf, tracker, _BEFORE), listed_hooks(vm, leaf, tracker, _AFTER))
                      for leaf, tracker in zip(leaves, trackers, strict=True)]
        self.saved: list[tuple[Node, set[int]]] = []
        hooked = [each for each, hooks in zip(trackers, self.hooks, strict=True) if each is not None and any(hooks)]
        plain = [each for each, hooks in zip(trackers, self.hooks, strict=True) if each is not None and not any(hooks)]
        for function, some in ((_core.plain_leaves, plain), (_core.leaves_with_listed_hooks, hooked)):
            if not function(*[tracker.original for tracker in some]):
                raise behind_autograd(vm, "SB016", f"{what}, which calls a hook on a node of autograd")
            vm.heap.guard_call(function, True, *[tracker.source for tracker in some])

    def __bool__(self) -> bool:
        return any(before or after for before, after in self.hooks)

    def watch(self, outputs: list[FakeTensor]) -> list[Any]:
        """Note the order of the leaves while the engine runs on the fakes; return the handles of that."""
        self.vm.recorder.propagation.require_exact()
        with torch._C.DisableTorchFunction():
            self.saved = [(each, saved_storages(each)) for each in boundaries.functions_behind(outputs)]
            self.accumulators = {id(each.variable): each for each, _ in self.saved
                                 if type(each) is boundaries.AccumulateGrad}
            with handle_numbers_kept():
                return [leaf.register_hook(self._noted(place)) for place, leaf in enumerate(self.leaves)]

    def _noted(self, place: int) -> Callable[[object], None]:
        def note(grad: object) -> None:
            if place in self.order:  # the pass through a branch runs the engine on each way before it goes on
                self.order.remove(place)
            self.order.append(place)
        return note

    def before(self, place: int, grad: FakeTensor) -> FakeTensor:
        """The gradient that a leaf gets, after the hooks on it."""
        for hook in self.hooks[place][0]:
            known = {storage_of(leaf) for each in self.vm.recorder.graph.nodes for leaf in tensors_of(each)}
            version = self.vm.recorder.version_of(grad)
            result = self._call(place, hook, grad)
            if self.vm.recorder.version_of(grad) != version:
                raise self._refused("with a hook that writes to a gradient")
            if result is None:
                continue
            with torch._C.DisableTorchFunction():
                if not isinstance(result, FakeTensor) or (result.shape, result.dtype, result.device, result.layout) != (
                        grad.shape, grad.dtype, grad.device, grad.layout):
                    raise self._refused("with a hook that returns another thing than such a gradient")
                known |= {storage_of(each.fake) for each in self.vm.recorder.inputs if type(each.fake) is FakeTensor}
                if result is not grad and storage_of(result) in known:
                    raise self._refused("with a hook that returns a tensor of older memory")
            grad = result
        return grad

    def after(self, place: int, is_stolen: bool) -> None:
        """Call the hooks behind the accumulation."""
        leaf = self.leaves[place]
        for hook in self.hooks[place][1]:
            grad = self.vm.tensors.grads.get(id(leaf), (None, None))[1]
            version = None if grad is None else self.vm.recorder.version_of(grad)
            if self._call(place, hook, leaf) is not None:
                raise self._refused("with a hook that returns something, which autograd refuses")
            if is_stolen and version is not None and self.vm.recorder.version_of(grad) != version:
                raise self._refused("with a hook that writes to memory of the pass")

    def _call(self, place: int, hook: object, value: FakeTensor) -> object:
        graph = self.vm.recorder.graph
        last = graph._root.prev
        try:
            result = self.vm.call_sync(hook, (value,))
        except Raised as raised:
            raise self._refused(f"with a hook that raises a {type(raised.exc).__name__}") from None
        except Break as stop:
            if stop.stop.turn_off is not None:
                raise
            raise behind_autograd(self.vm, stop.code, stop.detail) from None
        written: set[int] = set()
        while last is not graph._root.prev:
            last = last.next
            if writes(last):
                written |= set(written_storages(last))
        if written:
            self._require_unread(place, written)
        return result

    def _refused(self, why: str) -> Break:
        """A break behind which the engine reaches the leaves in the order of eager."""
        return behind_autograd(self.vm, "SB016", f"{self.what}, {why}")

    def _require_unread(self, place: int, written: set[int]) -> None:
        """Break where a hook writes to memory that the engine may read later."""
        accumulator = self.accumulators.get(id(self.leaves[place]))
        own_code = any(hook is not None and hook.node is not None for _, hook in self.vm.autograd.hooks.values())
        for function, storages in self.saved:
            own_code = own_code or isinstance(function, torch.autograd.function.BackwardCFunction)
            if not storages.isdisjoint(written) and not leads_to(function, accumulator):
                raise self._refused("with a hook that writes to what the pass may read later")
        if own_code:
            raise self._refused("with a hook that writes, beside other code of the program")


def listed_hooks(vm: VM, leaf: FakeTensor, tracker: VariableTracker | None, method: str) -> list[Any]:
    """Hooks of one kind on a leaf: those from outside under guards, then those of the trace."""
    own = [hook.function for _, hook in vm.autograd.hooks.values()
           if hook is not None and hook.tensor is leaf and hook.method == method and hook.node is None]
    if tracker is None:
        return own
    with torch._C.DisableTorchFunction():
        held = _DICTS[method](tracker.original)
    if not held:
        return own
    adopted = vm.heap.adopt(held, CallOf(Pinned(_DICTS[method]), (tracker.source,)))
    return [*vm.call_sync(listed_values, (adopted,)), *own]


def listed_values(hooks: dict[int, Any]) -> list[Any]:
    return list(hooks.values())


def tensors_of(node: fx.Node) -> list[FakeTensor]:
    with torch._C.DisableTorchFunction():
        return [each for each in pytree.tree_leaves(node.meta.get("example_value"))
                if type(each) is FakeTensor and each.layout is torch.strided]


def saved_storages(function: Node) -> set[int]:
    """Memory that a node of autograd reads in its backward."""
    found: list[Any] = []
    cls: Any = type(function)
    for name in boundaries.saved_names(cls):
        try:
            found += pytree.tree_leaves(getattr(function, name))
        except RuntimeError:  # written to, or freed: the engine raises
            continue
    return {storage_of(each) for each in found if type(each) is FakeTensor and each.layout is torch.strided}


def leads_to(function: Node, accumulator: Node | None) -> bool:
    """Whether the engine calls `function` before it accumulates."""
    waiting, seen = [function], {function}
    while waiting:
        each = waiting.pop()
        if each is accumulator:
            return True
        behind = {following for following, _ in each.next_functions if following is not None} - seen
        seen |= behind
        waiting += behind
    return False
