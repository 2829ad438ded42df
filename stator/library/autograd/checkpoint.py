"""Rules for torch.utils.checkpoint.   checkpoint(f, x, use_reentrant=False)  ->  f(x), its nodes to be recomputed

Nodes get the marks of AOTAutograd's partitioner.  With contexts of its own (a selective policy) `f` becomes an inner
graph and one node.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import CheckpointPolicy, noop_context_fn

from stator.breaks import Break, Strategy
from stator.graph.analysis.autograd_boundaries import Remembered, wants_grad
from stator.graph.analysis.may_fail import writes_outside
from stator.graph.analysis.mutation import tensors_in
from stator.guards.guard import is_constant
from stator.interp.frame import Continuation, Frame
from stator.interp.mechanisms import fingerprints
from stator.interp.rule_registry import suspending_rule
from stator.interp.vm import VM
from stator.library.autograd.autograd_hooks import outside_callable, why_disabled
from stator.library.autograd.backward_code import Call, checkpoint_ahead
from stator.library.torch.higher_order_operators import empty_like, finish, interpreted, modules_of
from stator.native.torch_ops import draws_random_numbers

_graph_ids = itertools.count(1)
_OPTIONS = frozenset({"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"})


class Region:
    """A running checkpoint: its options, and the state of the trace before it."""

    def __init__(self, vm: VM, reentrant: bool, keeps_stream: bool, call: Call) -> None:
        self.reentrant, self.keeps_stream, self.call = reentrant, keeps_stream, call
        self.marks = vm.recorder.region.marks
        self.last = vm.recorder.graph._root._prev
        self.before = fingerprints(vm) if torch.is_grad_enabled() else None

    def nodes(self, vm: VM) -> set[Any]:
        found, node = set(), vm.recorder.graph._root._prev
        while node is not self.last and node.op not in ("root", "placeholder"):
            found.add(node)
            node = node._prev
        return found

    def note_reads(self, vm: VM) -> None:
        """Note the memory that the backward pass reads again; AOTAutograd keeps writes to it in order."""
        if not vm.recorder.backend.may_be_cut:
            nodes = self.nodes(vm)
            reads = {vm.recorder.propagation.memory_behind(tensor) for node in nodes for each in node.all_input_nodes
                     if each not in nodes for tensor in tensors_in(each.meta.get("example_value"))}
            vm.recorder.log.read_again.append((reads, {node for node in nodes if wants_grad(node)}))

    def require_repeatable(self, vm: VM, value: object) -> None:
        """The backward pass runs the function again, with all that it does beside computing its value."""
        nodes = self.nodes(vm)
        if not self.reentrant and not any(wants_grad(node) for node in nodes):
            return  # nothing will be run again
        if fingerprints(vm) != self.before:
            raise Break("SB016", "a checkpoint of a function with effects, which the backward pass repeats")
        if writes_outside(nodes):
            raise Break("SB016", "a checkpoint of a function that changes tensors in place, which the backward pass "
                        "repeats")
        streams = [each for node in nodes for each in node.all_input_nodes
                   if type(each.meta.get("example_value")) is torch.Generator or each.target is torch.Generator]
        if streams or not self.keeps_stream and any(draws_random_numbers(node.target) for node in nodes):
            raise Break("SB016", "a checkpoint of a function that draws other random numbers in the backward pass")
        parts = value if type(value) is tuple else (value,)
        if self.reentrant and not all(type(part) is FakeTensor or is_constant(part) for part in parts):
            raise Break("SB016", "a reentrant checkpoint that returns tensors inside other objects, without gradients")


class EndOfRegion(Continuation):
    """The checkpointed function has ended: what follows is marked as before."""

    __slots__ = ("region", "cont")

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        vm.recorder.region.marks = self.region.marks
        if self.region.before is not None:
            self.region.require_repeatable(vm, value)
            self.region.note_reads(vm)
            checkpoint_ahead(vm, self.region.nodes(vm), self.region.call)
        vm.give(value, self.cont)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        vm.recorder.region.marks = self.region.marks
        return self.cont is not None and self.cont.raised(vm, frame, exc)


@suspending_rule(torch.utils.checkpoint.checkpoint)
def _checkpoint(vm: VM, cont: Any, function: Any, *args: Any, **kwargs: object) -> None:
    options = {name: value for name, value in kwargs.items() if name in _OPTIONS}
    given = {name: value for name, value in kwargs.items() if name not in _OPTIONS}
    reentrant = options.get("use_reentrant") is not False
    if reentrant:
        require_like_other(args, given, options)
        if not any(isinstance(value, torch.Tensor) and value.requires_grad for value in args):
            return without_gradients(vm, cont, function, args)
    if Strategy.CHECKPOINTS in vm.turned_off:
        raise Break("SB016", "a checkpoint that reads memory again which is written to meanwhile")
    if options.get("debug"):
        raise Break("SB016", "a checkpoint under debug")
    if not reentrant and torch.is_grad_enabled() and why_disabled(vm) is not None:
        raise Break("SB016", "a checkpoint where hooks on saved tensors are forbidden")
    if torch.is_inference_mode_enabled() and torch.is_grad_enabled():
        raise Break("SB016", "a checkpoint in inference mode with gradients on, which some versions of torch refuse")
    if vm.recorder.region.under_hooks:
        raise Break("SB016", "a checkpoint under hooks on saved tensors")
    contexts = options.get("context_fn", noop_context_fn)
    if contexts is not noop_context_fn:
        return vm.give(selective(vm, function, args, given, contexts), cont)
    region = Region(vm, reentrant, options.get("preserve_rng_state", True) is not False, (function, args, given))
    # An inner region is part of the outer one, which recomputes it anyway.
    vm.recorder.region.marks = region.marks or {"recompute": CheckpointPolicy.PREFER_RECOMPUTE,
                                         "ac_graph_id": next(_graph_ids)}
    vm.call(function, args, given, EndOfRegion(region, cont))


def require_like_other(args: Any, given: dict[str, Any], options: dict[str, Any]) -> None:
    """A reentrant checkpoint gives the same gradients as the other kind where an argument itself has one."""
    if options.get("use_reentrant") is not True:
        raise Break("SB016", "a checkpoint that does not say whether it is reentrant, which warns")
    if given or options.get("context_fn", noop_context_fn) is not noop_context_fn:
        raise Break("SB016", "a reentrant checkpoint with keyword arguments, which raises")
    if torch.is_grad_enabled() and any(isinstance(value, torch.Tensor) and value.requires_grad
                                       and type(value) is not FakeTensor for value in args):
        raise Break("SB016", "a reentrant checkpoint of tensors of other classes, with gradients")


def without_gradients(vm: VM, cont: Continuation | None, function: object, args: tuple[object, ...]) -> None:
    """Interpret torch's own code, which warns, and follows no gradient in `function`: no pass will need the state of
    the random streams."""
    apply = vm.sync(lambda: vm.load_attr(torch.utils.checkpoint.CheckpointFunction, "apply"))
    vm.call(apply, (function, False, *args), {}, cont)


def selective(vm: VM, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
              contexts: object) -> Any:
    """One node: the graph of the function, to be run under the contexts."""
    what = "a checkpoint with contexts of its own"
    contexts = outside_callable(vm, what, contexts)
    part, result = interpreted(vm, what, function, [], args, kwargs)
    leaves, spec = pytree.tree_flatten(result)
    tensors = [leaf for leaf in leaves if type(leaf) is FakeTensor]
    finish(vm, what, part, tensors, [])
    modules, operands = modules_of(part, roles=("wrap_body",))
    modules[0].meta["_checkpoint_context_fn"] = contexts
    made = as_results(modules[0], tensors, operands)
    vm.recorder.record("call_function", tag_activation_checkpoint, (modules[0], *operands), {"use_reentrant": False},
                       made)
    fresh = iter(made)
    return pytree.tree_unflatten([next(fresh) if type(leaf) is FakeTensor else leaf for leaf in leaves], spec)


def as_results(body: torch.fx.GraphModule, tensors: list[Any], operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """New fakes for what the node returns, with the history that it has."""
    with torch._C.DisableTorchFunction():
        fakes = [empty_like(each) for each in tensors]
        sources = [each for each in operands if isinstance(each, torch.Tensor) and each.requires_grad]
        if not sources or not torch.is_grad_enabled():
            return tuple(fakes)
        constant = tuple(fake for fake, each in zip(fakes, tensors, strict=True) if not each.requires_grad)

        def gradients(*grads: FakeTensor) -> tuple[torch.Tensor, ...]:
            with torch.enable_grad():
                again = {id(each): each.detach().requires_grad_() for each in sources}
                made = body(*[again.get(id(each), each) for each in operands])
                flowing = [(result, grad) for result, grad in zip(made, grads, strict=True) if result.requires_grad]
                return torch.autograd.grad([result for result, _ in flowing], list(again.values()),
                                           [grad for _, grad in flowing], allow_unused=True)

        results: tuple[Any, ...] = Remembered.apply((tuple(fakes), (), constant, gradients, sources[:1]), *sources)
        return results
