"""Rules for torch.autograd.Function.   F.apply(x, 2)  ->  its forward inlined, or one node

Where no gradient can flow, `forward` is part of the trace.  Where one can, forward and backward are interpreted once
each, and one node runs both graphs.  Where autograd itself must handle the function (`Unusual`), one node calls
`F.apply`.  Functions whose effects only a backward pass would show break.
"""

from __future__ import annotations

import enum
import functools
import inspect
import operator
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import FunctionCtx, _SingleLevelFunction

from stator.breaks import Break
from stator.graph.analysis.autograd_boundaries import BOUNDARY, remembered
from stator.graph.analysis.may_fail import why_once_among
from stator.graph.analysis.mutation import storage_of, written_storages
from stator.graph.record.recorder import Recorder
from stator.graph.record.subgraph import Subgraph
from stator.graph.state.torch_state import GRAD_MODE, without_grad
from stator.guards.guard import is_constant
from stator.heap.adopt.outside_arrays import SCALARS
from stator.heap.raw_access import instance_dict
from stator.host.value_kinds import is_a, mro_of
from stator.interp.branches.captured_branches import shares
from stator.interp.calls.allowed_calls import call_allowed
from stator.interp.calls.native_calls import function_defaults
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.lookup import find
from stator.interp.mechanisms import fingerprints
from stator.interp.mutation_check import MutationCheck
from stator.interp.objects.native_attributes import is_outside
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.tensors.tensor_bookkeeping import behind_autograd
from stator.interp.vm import VM
from stator.library.autograd.autograd_hooks import has_changes
from stator.library.autograd.backward_code import function_ahead
from stator.library.torch.higher_order_operators import empty_like, interpreted, modules_of, watched
from stator.settings import marks

_TAKES_KEYWORDS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)  # before, apply() dropped them
_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


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

    `forward(*given)` makes `outputs` results and more: `constant` have no gradient, `kept` are saved for `backward`;
    `places`: which result of `backward` is the gradient of each of `tensors`.
    """
    function = graph_function(name)
    return function.apply(outputs, constant, kept, places, forward, backward, given, more, *tensors)[:outputs]


def traced(vm: VM, application: Application) -> Any:
    """The results of F.apply: one node over the graphs of forward and backward."""
    def members(member: str, args: tuple[Any, ...]) -> Any:
        return vm.sync(lambda: call_member(vm, application.cls, member, args, None))

    name = application.cls.__name__
    vm.recorder.propagation.require_exact()  # which tensors share memory must be known
    inputs, ctx = application.inputs, application.ctx
    with without_grad(vm.torch_state):
        witness = watched(vm, f"{name}.apply")
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
        (behind, places), note = function_ahead(vm, name, instance_dict(ctx) or {}, lambda: backward_graph(
            vm, application, members, parts, tensors, constant, saved))
        refuse_changes(witness, f"{name}.backward")
    with ahead.reopened():
        made = [*tensors, *[each for each in saved if not any(each is tensor for tensor in tensors)]]
        ahead.finish(made)
    (forward,), given = modules_of(ahead, roles=("fwd_body",))
    (backward,), more = modules_of(behind, roles=("bwd_body",))
    flowing = tuple(value for value in inputs if type(value) is FakeTensor)

    def gradients(*grads: FakeTensor) -> list[FakeTensor | None]:
        back = [grad for number, grad in enumerate(grads) if number not in constant]
        answers = backward(*map(empty_like, saved), *back, *more)
        return [None if place is None else answers[place] for place in places]

    held = [each for each in (*saved, *more) if type(each) is FakeTensor]
    plan = (tuple(tensors), (), tuple(tensors[i] for i in constant), gradients, held[:1])
    with torch._C.DisableTorchFunction():
        results = remembered(name).apply(plan, *flowing)
    kept = tuple(next(i for i, each in enumerate(made) if each is tensor) for tensor in saved)
    args = (name, len(tensors), tuple(constant), kept, places, forward, backward, given, more, flowing)
    note(vm.recorder.record("call_function", apply_graphs, args, {}, results))
    fresh = iter(results)
    whole = tuple(next(fresh) if type(part) is FakeTensor else part for part in parts)
    return whole if type(output) is tuple else whole[0]


def is_constant_result(application: Any, tensor: Any) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex()) \
        or any(tensor is marked for marked in application.marks("non_differentiable"))


def refuse_changes(witness: MutationCheck, what: str) -> None:
    if changed := witness.changed():
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
    """The tensors made in forward that backward can reach through `ctx`."""
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
        except Raised:  # eager has not run it yet, and perhaps never does
            raise Unusual from None
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
    grad = empty_like(value)
    if not constant:
        part.bind(f"grad_{number}", grad)
        return grad
    options = {"dtype": value.dtype, "device": value.device}
    vm.recorder.record("call_function", torch.zeros, (tuple(value.shape),), options, grad)
    return grad


class Application:
    """One call of F.apply on its way: what it was given, and how the trace was before."""

    def __init__(self, vm: VM, cls: type, inputs: tuple[Any, ...]) -> None:
        self.cls, self.inputs = cls, inputs
        self.grad = torch.is_grad_enabled()
        self.separate = find(vm, cls, "setup_context") is not _SingleLevelFunction.__dict__["setup_context"]
        self.ctx = object.__new__(FunctionCtx)
        needs = tuple(type(value) is FakeTensor and value.requires_grad for value in inputs)
        instance_dict(self.ctx)["needs_input_grad"] = needs  # type: ignore[index]
        self.differentiable = self.grad and any(needs)
        self.before = fingerprints(vm, of_graph=False) if self.differentiable else None
        self.at_start = self.before  # of the first attempt
        self.marked = set(vm.recorder.graph.nodes) if self.differentiable else set()
        self.calls = vm.recorder.scope.calls

    def marks(self, name: str) -> tuple[Any, ...]:
        """Tensors given to ctx.mark_dirty or ctx.mark_non_differentiable."""
        return instance_dict(self.ctx).get(name, ())  # type: ignore[union-attr]


class AfterForward(Continuation):
    """`forward` (or `setup_context` after it) has returned: go on, or finish the call."""

    __slots__ = ("application", "cont", "output", "set_up")

    def __init__(self, application: Application, cont: object, output: object = None, set_up: bool = False) -> None:
        self.application, self.cont, self.output, self.set_up = application, cont, output, set_up

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        application = self.application
        if application.separate and not self.set_up:
            then = AfterForward(application, self.cont, value, True)
            return call_member(vm, application.cls, "setup_context", (application.ctx, application.inputs, value), then)
        output = self.output if self.set_up else value
        if application.differentiable:
            output = as_one_node(vm, application, output)
        else:
            output = without_history(vm, application, output)
            set_grad(vm, application.grad)
        vm.give(output, self.cont)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        set_grad(vm, self.application.grad)
        return self.cont is not None and self.cont.raised(vm, frame, exc)


def set_grad(vm: VM, enabled: bool) -> None:
    if torch.is_grad_enabled() != enabled:
        vm.torch_state.change(GRAD_MODE, (enabled,), {})
        vm.recorder.record("call_function", torch._C._set_grad_enabled, (enabled,), {}, None)


def call_member(vm: VM, cls: type, name: str, args: tuple[Any, ...], cont: object) -> None:
    vm.call(vm.sync(lambda: vm.load_attr(cls, name)), args, {}, cont)


@suspending_rule(getattr(_METHOD := torch.autograd.Function.__dict__["apply"], "__func__", _METHOD))  # C since 2.15
def _apply(vm: VM, cont: Any, cls: Any, *inputs: Any, **kwargs: object) -> None:
    if kwargs:
        inputs += by_position(vm, cls, len(inputs), kwargs)
    vm.recorder.refuse_tangents(f"{cls.__name__}.apply")
    if torch._C._are_functorch_transforms_active():
        raise Break("SB016", f"{cls.__name__}.apply inside a functorch transform")
    if marks.allowed_in_graph(cls):
        return call_allowed(vm, apply_of(cls), inputs, {}, cont)
    application = begun(vm, cls, inputs)
    # Inside an inner graph a transform of torch.func may be at work, which calls the class itself for its rules.
    if application.differentiable and vm.recorder.scope.enclosing is None \
            and find(vm, cls, "backward") is not _SingleLevelFunction.__dict__["backward"]:
        try:
            return vm.give(traced(vm, application), cont)
        except Unusual:
            at_start, application = application.before, begun(vm, cls, inputs)
            application.at_start = at_start
    inputs = application.inputs
    set_grad(vm, False)
    given = inputs if application.separate else (application.ctx, *inputs)
    call_member(vm, cls, "forward", given, AfterForward(application, cont))


def by_position(vm: VM, cls: type, count: int, kwargs: dict[str, object]) -> tuple[object, ...]:
    """Keyword arguments behind `count` inputs, in the order of `forward`'s parameters; torch refuses gaps."""
    if not _TAKES_KEYWORDS:
        raise Break("SB016", f"{cls.__name__}.apply with keyword arguments")
    forward = find(vm, cls, "forward")
    function = getattr(forward, "__func__", forward)
    if type(function) is not types.FunctionType or function.__code__.co_flags & _VARIADIC \
            or function.__code__.co_kwonlyargcount:
        raise Break("SB016", f"{cls.__name__}.apply with keyword arguments for a forward that takes any")
    first = count + (find(vm, cls, "setup_context") is _SingleLevelFunction.__dict__["setup_context"])
    names = function.__code__.co_varnames[first:function.__code__.co_argcount][:len(kwargs)]
    if set(names) != kwargs.keys():
        raise Break("SB016", f"{cls.__name__}.apply with keyword arguments that its forward does not take so")
    return tuple(kwargs[name] for name in names)


@rule(torch._C._FunctionBase.__new__)
def _instance(vm: VM, /, *args: object, **kwargs: object) -> Any:
    """`F().apply(x)`: instances are good for nothing else, and torch warns of them."""
    if not args or kwargs or not is_a(args[0], type) or torch.autograd.Function not in mro_of(args[0]):
        raise Break("SB016", "an autograd function in flight, made by the program")
    return torch._C._FunctionBase.__new__(args[0])


def begun(vm: VM, cls: type, inputs: tuple[Any, ...]) -> Application:
    application = Application(vm, cls, inputs)
    if application.separate:  # with setup_context, apply fills in the defaults of forward's last parameters
        forward = find(vm, cls, "forward")
        function = getattr(forward, "__func__", forward)
        missing = function.__code__.co_argcount - len(inputs)
        application.inputs = inputs + (function_defaults(vm, function)[-missing:] if missing > 0 else ())
    return application


def without_history(vm: VM, application: Application, output: object) -> Any:
    """Results of apply: an unchanged input comes back as another tensor."""
    if type(output) is tuple:
        return tuple(_without_history(vm, application, part) for part in output)
    return _without_history(vm, application, output)


def _without_history(vm: VM, application: Application, value: Any) -> Any:
    if type(value) is not FakeTensor:
        return value
    is_input = any(value is given for given in application.inputs)
    changed = any(value is dirty for dirty in application.marks("dirty_tensors"))
    if value.requires_grad:
        if not is_input:
            raise Break("SB016", f"{application.cls.__name__}.forward returns a tensor that requires a gradient")
        return vm.torch_call(torch.Tensor.detach, (value,), None)
    return vm.torch_call(torch.Tensor.view_as, (value, value), None) if is_input and not changed else value


@functools.cache
def apply_of(cls: Any) -> Any:
    def apply(*args: Any) -> Any:
        return cls.apply(*args)
    apply.__name__ = apply.__qualname__ = f"{cls.__name__}_apply"
    return apply


def as_one_node(vm: VM, application: Application, output: object) -> Any:
    name = application.cls.__name__
    writes = fingerprints(vm, of_graph=False) != application.before
    if writes and beside_inputs(vm, application, fingerprints(vm, of_graph=False)) \
            != beside_inputs(vm, application, application.before):
        raise Break("SB016", f"{name}.forward changes something outside")
    if writes and not vm.recorder.backend.in_order and beside_inputs(vm, application, application.at_start) \
            != application.at_start:  # a compiler's piece in front would count the writes of both
        raise Break("SB016", f"{name}.forward changes what the program has changed before")
    bound = {place: guarded(vm, value, name) for place, value in enumerate(application.inputs)
             if type(value) is not FakeTensor and not is_constant(value)}
    parts = output if type(output) is tuple else (output,)
    if not all(type(part) is FakeTensor or is_constant(part) for part in parts):
        raise Break("SB016", f"{name}.forward returns something else than tensors, with gradients")
    recorder = vm.recorder
    storages, once = withdraw(recorder, application)
    vm.torch_state.change(GRAD_MODE, (application.grad,), {})
    def gradients(*grads: FakeTensor) -> list[torch.Tensor | None]:
        """Those of `backward`, run on fakes; the node runs it itself."""
        if has_changes(vm) or not all(type(grad) is FakeTensor for grad in grads):
            raise behind_autograd(vm, "SB016", f"{name}.backward beside changes that are still to be written back")
        instance_dict(application.ctx)["saved_tensors"] = tuple(saved)  # type: ignore[index]
        function = functools.partial(vm.sync(lambda: vm.load_attr(application.cls, "backward")), application.ctx)
        with without_grad(vm.torch_state):
            _, answer = interpreted(vm, f"{name}.backward", function, list(map(empty_like, grads)), ())
        answers = [*answer] if type(answer) is tuple else [answer]
        return [None if each is None else empty_like(each) for each in answers[:len(application.inputs)]]

    saved = instance_dict(application.ctx).get("to_save") or ()  # type: ignore[union-attr]
    plan = (output, application.marks("dirty_tensors"), application.marks("non_differentiable"), gradients, saved[:1])
    with torch._C.DisableTorchFunction():
        result = remembered(name).apply(plan, *application.inputs)
    target = bound_apply(application.cls, bound) if bound else apply_of(application.cls)
    given = tuple(value for place, value in enumerate(application.inputs) if place not in bound)
    written = [value for value in given if type(value) is FakeTensor and storage_of(value) in storages]
    node = recorder.record("call_function", target, given, {}, result, written, once)
    if writes or any(type(part) is FakeTensor and part._is_view()
                     for part in (result if type(result) is tuple else (result,))):
        node.meta[BOUNDARY] = True  # autograd refuses writes to such views, which compilers give another history
    return result


def beside_inputs(vm: VM, application: Application, state: list[object] | None) -> list[object]:
    """Fingerprints without the writes to arguments from outside, which the node repeats."""
    trackers = {id(vm.heap.by_standin.get(id(value))) for value in application.inputs if type(value) is FakeTensor}
    return [[item for item in each if not (type(item) is tuple and item and item[0] in trackers)]
            if type(each) is list else each for each in state or ()]


def guarded(vm: VM, value: object, name: str) -> Any:
    """An argument that is nothing for a node of a graph: one that is itself in every call may be bound beforehand."""
    if type(value) in SCALARS:  # of numpy: immutable, and guarded by its value where it comes from outside
        return value
    known = is_a(value, enum.Enum) and is_outside(vm, value) or vm.is_constant_object(value) \
        or (is_a(value, type) or type(value) is types.FunctionType) and id(value) not in vm.fresh
    if not known:
        raise Break("SB016", f"{name}.apply of a {type(value).__name__}, with gradients")
    return vm.guard_identity(value)


def bound_apply(cls: Any, bound: dict[int, Any]) -> Any:
    """The target of a node that is given the other arguments."""
    def apply(*args: Any) -> Any:
        given = iter(args)
        return cls.apply(*[bound[place] if place in bound else next(given) for place in range(len(args) + len(bound))])
    apply.__name__ = apply.__qualname__ = f"{cls.__name__}_apply"
    return apply


def withdraw(recorder: Recorder, application: Application) -> tuple[set[int], str]:
    """Erase forward's own nodes; out: the storages that they write to, and why they must not run twice."""
    storages: set[int] = set()
    once = why_once_among([node for node in recorder.graph.nodes if node not in application.marked])
    for node in reversed(list(recorder.graph.nodes)):
        if node in application.marked or node.op == "placeholder" or node.users or (
                node.target is operator.getitem and node.args[0] in application.marked
                and is_a(node.args[0].meta.get("example_value"), (tuple, list))):
            continue
        storages |= written_storages(node)
        recorder.graph.erase_node(node)
        result = node.meta.get("example_value")
        for part in result if is_a(result, (tuple, list)) else (result,):
            tied = recorder.nodes.get(id(part))
            if tied is node or type(tied) is tuple and tied[0] is node:
                del recorder.nodes[id(part)]
    recorder.scope.calls = application.calls
    return storages, once


# No functorch transform is active in a trace, so no wrapper can have died in it
rule(torch._C._functorch.unwrap_if_dead)(lambda vm, tensor, /: tensor)
