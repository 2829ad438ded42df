"""torch.autograd.Function as two graphs.   F.apply(x, config)  ->  one node over the graphs of forward and backward

Both methods are interpreted once.  What `forward` leaves on `ctx` and `backward` uses is handed from one graph to the
other; tensors that either takes from outside its arguments are operands of the node.  Functions whose effects only a
backward pass would show, or that give back what they were given, are refused (`Unusual`, or a break).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.record.subgraph import Subgraph
from stator.graph.state.torch_state import without_grad
from stator.guards.guard import is_constant
from stator.heap.raw_access import instance_dict
from stator.interp.branches.captured_branches import describe, shares
from stator.interp.frame import Raised
from stator.interp.mutation_check import Unwatched, Witness
from stator.interp.vm import VM
from stator.library.torch.higher_order_operators import modules_of


class GraphFunction(torch.autograd.Function):
    """Runs the graphs; only `tensors`, the arguments of F.apply, take part in gradients."""

    @staticmethod
    def forward(outputs: int, constant: object, kept: object, places: object, forward: Any, backward: object,
                given: Any, more: object, *tensors: object) -> Any:
        return tuple(forward(*given))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs, constant, kept, places, _, backward, _, more = inputs[:8]
        saved = [output[i] for i in kept]
        ctx.graph, ctx.places, ctx.count = backward, places, len(saved)
        ctx.flowing = [i for i in range(outputs) if i not in constant]
        ctx.numbers = [None if isinstance(value, torch.Tensor) else value for value in more]
        ctx.save_for_backward(*saved, *[value for value in more if isinstance(value, torch.Tensor)])
        ctx.mark_non_differentiable(*[output[i] for i in constant], *output[outputs:])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        saved = ctx.saved_tensors
        rest = iter(saved[ctx.count:])
        more = [next(rest) if number is None else number for number in ctx.numbers]
        made = ctx.graph(*saved[:ctx.count], *[grads[i] for i in ctx.flowing], *more)
        return (None,) * 8 + tuple(None if place is None else made[place] for place in ctx.places)


@functools.lru_cache(64)
def graph_function(name: str) -> Any:
    """The class whose results' `grad_fn` is called after the program's own function."""
    make: Any = type(GraphFunction)
    return make(name, (GraphFunction,), {})


def apply_graphs(name: str, outputs: int, constant: object, kept: object, places: object, forward: object,
                 backward: object, given: object, more: object, tensors: Sequence[Any]) -> Any:
    """The operation: two graphs as one autograd.Function of that name.

    `forward(*given)` makes `outputs` results and more; those numbered in `constant` have no gradient, and those in
    `kept` are saved for `backward`; `places` says which result of `backward` is the gradient of each of `tensors`.
    """
    function = graph_function(name)
    return function.apply(outputs, constant, kept, places, forward, backward, given, more, *tensors)[:outputs]


def traced_apply(vm: VM, application: Any, members: Any, as_outputs: Any) -> Any:
    """The results of F.apply, recorded as one node; Unusual where the function is not of this kind.

    `members` calls a method of the class; `as_outputs` gives fakes the history that the node gives its results.
    """
    name = application.cls.__name__
    vm.recorder.propagation.require_exact()  # which tensors share memory must be known
    inputs, ctx = application.inputs, application.ctx
    with without_grad(vm.torch_state):
        try:
            witness = Witness(vm)
        except Unwatched as why:
            raise Break("SB016", f"{name}.apply, while {describe(why)}") from None
        with Subgraph(vm.recorder, floats=True) as ahead:
            versions = [vm.recorder.version_of(value) for value in inputs if type(value) is FakeTensor]
            output = members("forward", inputs if application.separate else (ctx, *inputs))
            if application.separate:
                members("setup_context", (ctx, inputs, output))
            vm.heap.expose_deep(output)
        if versions != [vm.recorder.version_of(value) for value in inputs if type(value) is FakeTensor]:
            raise Unusual
        refuse_changes(witness, f"{name}.forward")
        parts = output if type(output) is tuple else (output,)
        tensors = [part for part in parts if type(part) is FakeTensor]
        constant = [i for i, part in enumerate(tensors) if is_constant_result(application, part)]
        refuse_unusual(name, ahead, parts, tensors)
        saved = own_tensors(ctx, ahead)
        behind, places = backward_graph(vm, application, members, parts, tensors, constant, saved)
        refuse_changes(witness, f"{name}.backward")
    with ahead.reopened():
        made = [*tensors, *[each for each in saved if not any(each is tensor for tensor in tensors)]]
        ahead.finish(made)
    (forward,), given = modules_of(ahead, roles=("fwd_body",))
    (backward,), more = modules_of(behind, roles=("bwd_body",))
    flowing = tuple(value for value in inputs if type(value) is FakeTensor)
    results = as_outputs(tuple(tensors), tuple(tensors[i] for i in constant))
    kept = tuple(next(i for i, each in enumerate(made) if each is tensor) for tensor in saved)
    args = (name, len(tensors), tuple(constant), kept, places, forward, backward, given, more, flowing)
    vm.recorder.record("call_function", apply_graphs, args, {}, results)
    fresh = iter(results)
    whole = tuple(next(fresh) if type(part) is FakeTensor else part for part in parts)
    return whole if type(output) is tuple else whole[0]


def is_constant_result(application: Any, tensor: Any) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex()) \
        or any(tensor is marked for marked in application.marks("non_differentiable"))


def refuse_changes(witness: Witness, what: str) -> None:
    changed = witness.changed()
    if changed:
        raise Break("SB016", f"{what} has effects: {changed}")


def refuse_unusual(name: str, part: Subgraph, parts: tuple[Any, ...], tensors: list[Any]) -> None:
    if not tensors or not all(type(value) is FakeTensor or is_constant(value) for value in parts):
        raise Break("SB016", f"{name}.forward returns something else than tensors, with gradients")
    if any(shares(tensor, part.outer_fakes) for tensor in tensors) \
            or any(shares(tensor, tensors[:i]) for i, tensor in enumerate(tensors)):
        raise Unusual


class Unusual(Exception):
    """A function that gives back what it was given, or parts of it: autograd itself must handle it."""


def own_tensors(ctx: object, part: Subgraph) -> list[Any]:
    """The tensors of forward's own that backward can reach through `ctx`."""
    found: dict[int, Any] = {}
    known = {id(fake) for fake in part.outer_fakes}
    own = instance_dict(ctx) or {}
    waiting: list[Any] = [*own.values()]
    while waiting:
        value = waiting.pop()
        if type(value) is FakeTensor:
            if id(value) not in known:
                found[id(value)] = value
        elif type(value) in (tuple, list):
            waiting += value
        elif type(value) is dict:
            waiting += value.values()
    return list(found.values())


def backward_graph(vm: VM, application: Any, members: Any, parts: tuple[Any, ...], tensors: list[Any],
                   constant: list[int], saved: list[Any]) -> tuple[Subgraph, tuple[int | None, ...]]:
    """The graph of backward, given what is saved and the gradients; and where each argument's gradient is in it."""
    ctx, name = application.ctx, application.cls.__name__
    own = instance_dict(ctx)
    assert own is not None
    materialize = own.get("materialize_grads", True)
    if materialize is False and len(tensors) - len(constant) > 1:
        raise Unusual
    own["saved_tensors"] = tuple(own.get("to_save") or ())
    with Subgraph(vm.recorder, floats=True) as part:
        for number, tensor in enumerate(saved):
            part.bind(f"saved_{number}", tensor)
        constants = [tensors[i] for i in constant]
        grads = [gradient_like(vm, value, i, part, any(value is each for each in constants))
                 for i, value in enumerate(parts)]
        if materialize is False:
            grads = [None if any(value is each for each in constants) else grad
                     for value, grad in zip(parts, grads, strict=True)]
        try:
            answer = members("backward", (ctx, *grads))
        except Raised as raised:  # eager would not have run it yet, and on a ctx that knows more
            raise Break("SB016", f"{name}.backward raises {type(raised.exc).__name__}") from None
        vm.heap.expose_deep(answer)
        answers = answer if type(answer) is tuple else (answer,)
        if len(answers) < len(application.inputs):
            raise Unusual  # autograd refuses them, once there is a backward pass
        if not all(each is None or type(each) is FakeTensor for each in answers):
            raise Break("SB016", f"{name}.backward returns other things than gradients")
        wanted = [each for value, each in zip(application.inputs, answers, strict=False) if type(value) is FakeTensor]
        made = [each for each in wanted if each is not None]
        part.finish(made)
    places = iter(range(len(made)))
    return part, tuple(None if each is None else next(places) for each in wanted)


def gradient_like(vm: VM, value: Any, number: int, part: Subgraph, constant: bool) -> Any:
    """The gradient of one result, as backward is given it: zeros where none can flow, None for what is no tensor."""
    if type(value) is not FakeTensor:
        return None
    with torch._C.DisableTorchFunction():
        grad = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    if not constant:
        part.bind(f"grad_{number}", grad)
        return grad
    options = {"dtype": value.dtype, "device": value.device}
    vm.recorder.record("call_function", torch.zeros, (tuple(value.shape),), options, grad)
    return grad
