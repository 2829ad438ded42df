"""Gradients of gradients through AOTAutograd.   grad(y, x, create_graph=True)  ->  the graph run again, by autograd

Only a backward pass that must be differentiable runs the captured graph eagerly, on the inputs of that call.  torch's
own error is raised where the graph writes to an input that it reads, the program has changed one in place since, or the
compiler draws other random numbers than eager does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from stator.backends.aot import compile_aot_eager
from stator.backends.eager import NEED_NO_CODE
from stator.graph.analysis.mutation import uncounted_writes, written_by
from stator.graph.analysis.mutation import writes as writes_memory
from stator.graph.fx.graph_modules import straight_function
from stator.native.torch_ops import draws_inside

Function = Callable[..., Any]


def twice_differentiable(gm: torch.fx.GraphModule, inputs: Sequence[Any], grad_enabled: bool, backend: Any
                         ) -> Callable[[Function], Function]:
    """Choose the wrapper of the function that the backend compiles from `gm`; called before the backend gets `gm`."""
    if not grad_enabled or backend.function in NEED_NO_CODE or not wants_grad(inputs):
        return lambda compiled: compiled
    written = writes(gm)
    if written is None:
        return lambda compiled: compiled
    random = draws_inside(gm)
    if random and (backend.function is not compile_aot_eager
                   or any(isinstance(each, torch.Tensor) and not each.is_cpu for each in inputs)):
        return lambda compiled: compiled
    return Differentiable(straight_function(gm), random, written).around


def wants_grad(inputs: Sequence[Any]) -> bool:
    return any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs)


def writes(gm: torch.fx.GraphModule) -> frozenset[int] | None:
    """Inputs that the graph writes and never reads; None where it may read what it has written."""
    changes = reads_data = False
    for node in gm.graph.nodes:
        changes = changes or writes_memory(node)
        reads_data = reads_data or node.target is getattr and node.args[1] == "data" or node.target == "detach"
    if changes and reads_data:
        return None
    written = set()
    updated = {each for node in gm.graph.nodes for each in uncounted_writes(node)}
    for place, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        fake = node.meta.get("example_value")
        if node in updated or isinstance(fake, torch.Tensor) and not fake.is_inference() and fake._version:
            if fake.requires_grad or not all(only_writes(user, node) for user in node.users):
                return None
            written.add(place)
    return frozenset(written)


def only_writes(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether all that becomes of `node` here is that it is changed: a count, the running mean of a batch norm."""
    if node in uncounted_writes(user):
        return user.all_input_nodes.count(node) == 1
    return not user.users and node in written_by(user)


class Differentiable:
    """The eager form of one captured graph, and the settings it was captured under."""

    def __init__(self, eager: Function, random: bool, written: frozenset[int]) -> None:
        self.eager, self.random, self.written = eager, random, written
        self.autocast = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
                         for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]

    def around(self, compiled: Function) -> Function:
        def run(*args: object) -> Any:
            state = torch.get_rng_state() if self.random else None
            out = compiled(*args)
            node, places = backward_node(out)
            if node is not None:
                node.register_hook(Again(self, args, places, state))
            return out
        return run

    @contextlib.contextmanager
    def settings(self, state: torch.Tensor | None) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for kind in ("cpu", "cuda"):
                stack.enter_context(torch.autocast(kind, enabled=False)) if torch.is_autocast_enabled(kind) else None
            for kind, enabled, dtype in self.autocast:
                stack.enter_context(torch.autocast(kind, enabled=enabled, dtype=dtype))
            if state is not None:
                stack.enter_context(torch.random.fork_rng(devices=[]))
                torch.set_rng_state(state)
            yield


class Again:
    """A hook of the compiled backward of one call: it replaces gradients that must have a history."""

    def __init__(self, graph: Differentiable, args: tuple[Any, ...], places: dict[int, tuple[int, bool]],
                 state: torch.Tensor | None) -> None:
        self.graph, self.args, self.places, self.state = graph, args, places, state
        self.versions = versions_of(args, graph.written)

    def __call__(self, grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> Any:
        args = self.args
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            self.args = ()  # autograd lets go of what it has saved, too
        if not torch.is_grad_enabled() or not args:
            return None
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        given = [(self.places.get(number), grad) for number, grad in enumerate(grad_outputs) if grad is not None]
        if len(tensors) != len(grad_inputs) or any(place is None for place, _ in given) \
                or versions_of(args, self.graph.written) != self.versions:
            return None
        return self.gradients(args, tensors, given)

    def gradients(self, args: tuple[Any, ...], tensors: list[torch.Tensor], given: list[Any]) -> tuple[Any, ...] | None:
        # Other names for the inputs: hooks on the inputs themselves run once, when these gradients arrive there.
        names = {id(each): each.view_as(each) for each in tensors if each.requires_grad}
        again = [each.clone() if place in self.graph.written else names.get(id(each), each)
                 for place, each in enumerate(args)]
        with self.graph.settings(self.state):
            out = self.graph.eager(*again)
        roots, grads = [], []
        for (place, is_base), grad in given:
            root = out[place]._base if is_base and out[place]._base is not None else out[place]
            if not root.requires_grad or root.shape != grad.shape:
                return None
            roots.append(root)
            grads.append(grad)
        found = iter(torch.autograd.grad(roots, list(names.values()), grads, create_graph=True, allow_unused=True))
        return tuple([next(found) if each.requires_grad else None for each in tensors])


def versions_of(args: tuple[Any, ...], written: frozenset[int]) -> list[int]:
    return [each._version for place, each in enumerate(args)
            if isinstance(each, torch.Tensor) and not each.is_inference() and place not in written]


def backward_node(out: Sequence[Any]) -> tuple[Any, dict[int, tuple[int, bool]]]:
    """AOTAutograd's node behind these results, and which result is which of its outputs (or a view of one)."""
    found: Any = None
    places: dict[int, tuple[int, bool]] = {}
    for number, each in enumerate(out):
        node = each.grad_fn if isinstance(each, torch.Tensor) else None
        if node is None:
            continue
        output, is_base = each.output_nr, False
        if not is_compiled(node) and len(node.next_functions) == 1:
            (node, output), is_base = node.next_functions[0], True
        if node is not None and is_compiled(node):
            if found is not None and node is not found:
                return None, {}
            found = node
            places.setdefault(output, (number, is_base))
    return found, places


def is_compiled(node: fx.Node) -> bool:
    return hasattr(getattr(type(node), "_forward_cls", None), "_aot_id")
