"""Code that a backward pass runs, interpreted ahead of it.   F.apply(x), y.register_hook(f), checkpoint(f, x)

In: the nodes that the code gave when it was handed over, and how to interpret it again.  Out: a Break where a captured
pass would get other nodes, as the code reads what has changed since.  Behind that break autograd calls it itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break, Strategy
from stator.graph.analysis.autograd_boundaries import behind
from stator.graph.record.subgraph import Subgraph, operand_key
from stator.graph.state.torch_state import without_grad
from stator.interp.mechanisms import fingerprints
from stator.interp.vm import VM
from stator.library.torch.higher_order_operators import empty_like, interpreted, watched
from stator.shapes.symbolic_values import SYMBOLIC

Parts = tuple[Subgraph, tuple[int | None, ...]]
Call = tuple[Callable[..., object], tuple[object, ...], dict[str, object]]
_HOOK = "a hook on a tensor"
AHEAD = Strategy.BACKWARD_CODE


@dataclass(eq=False)
class CodeAhead:
    """Code of one hook or checkpoint, where in the graph it is, and its own nodes as they were then."""

    vm: VM
    what: str
    places: set[fx.Node]
    nodes: object
    interpret: Callable[[], object]
    turn_off: Strategy = AHEAD
    state: object = None  # of the trace, where the code is interpreted again only if that has changed

    def require_same(self) -> None:
        if self.state is not None and self.state == fingerprints(self.vm, of_graph=False):
            return
        witness = watched(self.vm, self.what)
        try:
            same = self.interpret() == self.nodes and not witness.changed()
        except Exception:
            same = False
        if not same:
            raise Break("SB016", f"{self.what} that reads what changes before the backward pass",
                        turn_off=self.turn_off)


class FunctionAhead:
    """`backward` of an autograd.Function: the engine has it interpreted again when it comes there."""

    def __init__(self, vm: VM, name: str, own: dict[str, object], interpret: Callable[[], Parts]) -> None:
        require_ahead(vm, f"{name}.backward")
        before = dict(own)
        self.first = part, places = interpret()
        nodes = places, described_part(part)

        def again() -> object:
            own.clear()
            own.update(before)  # `backward` may free what it has read
            with without_grad(vm.torch_state):
                part, places = interpret()
            return places, described_part(part)
        self.require_same = CodeAhead(vm, f"{name}.backward", set(), nodes, again).require_same


def hook_ahead(vm: VM, fake: FakeTensor, function: Callable[..., object]) -> Subgraph:
    """The graph of a hook on a tensor of the graph."""
    require_ahead(vm, _HOOK)
    part = hook_graph(vm, fake, function)
    vm.autograd.ahead.append(CodeAhead(vm, _HOOK, {vm.recorder.node_of(fake)}, described_part(part),
                                       lambda: described_part(hook_graph(vm, fake, function))))
    return part


def hook_graph(vm: VM, fake: FakeTensor, function: Callable[..., object]) -> Subgraph:
    grad = empty_like(fake)
    with without_grad(vm.torch_state):
        part, result = interpreted(vm, _HOOK, function, [grad], ())  # backward() runs hooks without gradients
    with torch._C.DisableTorchFunction():
        if grad._version:
            raise Break("SB016", f"{_HOOK} that changes the gradient in place")
        result = grad if result is None else result
        if type(result) is not FakeTensor:
            raise Break("SB016", f"{_HOOK} that returns a {type(result).__name__}")
        if (result.shape, result.dtype, result.device) != (grad.shape, grad.dtype, grad.device):
            raise Break("SB016", f"{_HOOK} that returns a tensor of another kind than the gradient")
    with part.reopened():
        part.finish([result], single=True)
    return part


def checkpoint_ahead(vm: VM, places: set[fx.Node], call: Call) -> None:
    """Note a checkpointed call, whose nodes are part of the graph."""
    what, (function, args, kwargs) = "a checkpoint of a function", call
    nodes = [each for each in sorted(places) if not is_part_of(each, places)]
    values = {given: given.meta.get("example_value") for each in nodes for given in each.all_input_nodes}
    outer = {given: operand_key(value) if isinstance(value, (torch.Tensor, *SYMBOLIC)) else id(value)
             for given, value in values.items() if given not in places or is_part_of(given, places)}

    def again() -> object:
        return described_part(interpreted(vm, what, function, [], args, kwargs)[0])
    vm.autograd.ahead.append(CodeAhead(vm, what, places, described(nodes, outer), again, Strategy.CHECKPOINTS,
                                       fingerprints(vm, of_graph=False)))


def is_part_of(node: fx.Node, places: set[fx.Node]) -> bool:
    """Whether a node takes one of several results from outside, which an inner graph would get itself."""
    return node.target is operator.getitem and node.args[0] not in places \
        and isinstance(node.all_input_nodes[0].meta.get("example_value"), (tuple, list))


def require_unchanged(vm: VM, outputs: Iterable[FakeTensor]) -> None:
    """Break where code that a pass from these tensors runs would do otherwise than it did."""
    if vm.autograd.ahead:
        reached = {node for each in outputs for node in behind(vm.recorder.node_of(each))}
        for code in vm.autograd.ahead:
            if not reached.isdisjoint(code.places):
                code.require_same()


def require_ahead(vm: VM, what: str) -> None:
    if AHEAD in vm.turned_off:
        raise Break("SB016", f"{what} that reads what changes before the backward pass")


def described(nodes: Iterable[fx.Node], outer: Mapping[fx.Node, object]) -> list[object]:
    """Calls, comparable with those of another graph over the same operands."""
    numbers: dict[fx.Node, object] = dict(outer)
    found: list[object] = []
    for node in nodes:
        numbers.setdefault(node, node.name if node.op == "placeholder" else len(found))
        if node.op != "placeholder":
            found.append((node.op, node.target, fx.map_arg((node.args, node.kwargs), numbers.__getitem__)))
    return found


def described_part(part: Subgraph) -> list[object]:
    """The nodes of an inner graph, before it takes the operands of others."""
    return described(part.graph.nodes, dict(zip(part.inputs, map(operand_key, part.lifted), strict=True)))
