"""Rules for torch.autograd.grad.   g, = torch.autograd.grad(y.sum(), x)  ->  one node, whose results are new fakes

In: outputs whose whole history is in the graph: every tensor from outside behind them is a leaf.  Out: a node that
calls torch.autograd.grad where the graph runs, or where a compiler traces it.  The engine is run on the fakes, which
have the same history, to learn which gradients there are.  Whatever goes wrong there is a break: eager says it best.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.host.value_kinds import is_a
from stator.interp.rule_registry import rule
from stator.interp.tensors.tensor_bookkeeping import is_leaf
from stator.interp.vm import VM
from stator.source import CallOf, Pinned
from stator.strategy import Strategy

_WHAT = "torch.autograd.grad inside captured code"


@rule(torch.autograd.grad)
def _grad(vm: VM, outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: Any = None,
          create_graph: Any = False, only_inputs: Any = True, allow_unused: Any = None, is_grads_batched: Any = False,
          materialize_grads: Any = False) -> Any:
    if Strategy.GRADIENTS_INSIDE in vm.turned_off or vm.recorder.scope.enclosing is not None:
        raise Break("SB016", _WHAT)
    vm.recorder.refuse_tangents(_WHAT)
    hooked = any(hook is not None and hook.node is None for _, hook in vm.autograd.hooks.values())
    if vm.autograd.retained or vm.autograd.watches or vm.torch_state.hooks or hooked:
        raise Break("SB016", f"{_WHAT}, after retain_grad() or a hook was registered")
    options = {"create_graph": create_graph, "allow_unused": allow_unused, "materialize_grads": materialize_grads}
    if any(flag is not None and type(flag) is not bool
           for flag in (retain_graph, only_inputs, is_grads_batched, *options.values())) \
            or is_grads_batched or not only_inputs:
        raise Break("SB016", f"{_WHAT}, of batched gradients or with flags that are no constants")
    outputs, inputs = tensors_of(vm, outputs), tensors_of(vm, inputs)
    seeds = None if grad_outputs is None else tensors_of(vm, grad_outputs, True)
    if any(note.kept for note in vm.tensors.data.values()):
        raise Break("SB006", f"{_WHAT}, after an assignment to Tensor.data of a saved tensor",
                    turn_off=Strategy.DATA_ASSIGNMENTS)
    require_whole_history(vm, outputs)
    result = gradients_of_fakes(vm, outputs, inputs, seeds, options)
    vm.recorder.record("call_function", torch.autograd.grad, (outputs, inputs, seeds),
                       {"retain_graph": retain_graph, **options}, result)
    vm.recorder.log.changes += 1
    return result


def tensors_of(vm: VM, value: object, or_none: bool = False) -> list[Any]:
    if type(value) is FakeTensor:
        return [value]
    if is_a(value, (dict, torch.Tensor)):
        raise Break("SB016", f"{_WHAT}, of a {type(value).__name__}")
    found = vm.collect(value)
    if not all(type(each) is FakeTensor or or_none and each is None for each in found):
        raise Break("SB016", f"{_WHAT}, of something else than tensors")
    return found


def require_whole_history(vm: VM, outputs: list[Any]) -> None:
    """Break where the engine could leave the graph: a tensor from outside that was computed there."""
    behind: set[fx.Node] = set()
    waiting = [vm.recorder.node_of(each) for each in outputs]
    while waiting:
        node = waiting.pop()
        if node not in behind:
            behind.add(node)
            waiting += node.all_input_nodes
    for each in vm.recorder.inputs:
        if each.node in behind and type(each.fake) is FakeTensor and each.tensor is not None:
            with torch._C.DisableTorchFunction():
                if not each.fake.requires_grad:
                    continue
            if not is_leaf(vm, each.fake, vm.heap.by_standin.get(id(each.fake))):
                raise Break("SB016", f"{_WHAT}, of what was computed before")
            if has_hooks(each.tensor):
                raise Break("SB016", f"{_WHAT}, which calls a hook")
            vm.heap.guard(CallOf(Pinned(has_hooks), (each.source,)), Kind.FRESH_CALL, False)


def has_hooks(tensor: torch.Tensor) -> bool:
    """Whether the engine calls the program on its way to a leaf."""
    with torch._C.DisableTorchFunction():
        return bool(tensor._backward_hooks)


def gradients_of_fakes(vm: VM, outputs: list[Any], inputs: list[Any], seeds: Any, options: dict[str, Any]
                       ) -> tuple[Any, ...]:
    try:
        with torch._C.DisableTorchFunction(), vm.recorder.symbols.dispatcher(), \
                torch.autograd.set_multithreading_enabled(False):
            found = torch.autograd.grad(outputs, inputs, seeds, retain_graph=True, **options)
    except Exception as error:
        raise Break("SB016", f"{_WHAT}: {error}".splitlines()[0]) from None
    if not all(each is None or type(each) is FakeTensor for each in found):
        raise Break("SB016", f"{_WHAT}, which gives other things than plain tensors")
    # A seed that is handed on is itself: it has a node already.
    known = {id(each): each for each in (*outputs, *inputs, *(seeds or ())) if each is not None}
    made = [each for each in found if each is not None]
    if len({id(each) for each in made} | known.keys()) != len(made) + len(known):
        raise Break("SB016", f"{_WHAT}, which gives one tensor twice")
    return found
