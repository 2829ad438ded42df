"""Rules for torch.autograd.Function.   F.apply(x, 2)  ->  its forward inlined, or one node that calls F.apply

Where no gradient can flow, `forward` is simply part of the trace, run without gradients as autograd runs it.
Where one can, the graph must keep the user's `backward`: `forward` is interpreted once, to learn its result and
that it touches nothing outside, its nodes are taken back, and one node calls `F.apply` in their place.
"""

from __future__ import annotations

import enum
import functools
import operator
import types
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import FunctionCtx, _SingleLevelFunction

from stator.breaks import Break
from stator.graph.analysis.mutation import is_repeatable, storage_of, written_storages
from stator.graph.autograd.autograd_metadata import Remembered
from stator.graph.record.recorder import Recorder
from stator.graph.state.torch_state import GRAD_MODE
from stator.guards.guard import is_constant
from stator.heap.raw_access import instance_dict
from stator.host.value_kinds import is_a
from stator.interp.calls.allowed_calls import call_allowed
from stator.interp.calls.call_protocol import function_defaults
from stator.interp.frame import Continuation, Frame
from stator.interp.lookup import find, mro_of
from stator.interp.mechanisms import fingerprints
from stator.interp.objects.descriptors import is_outside
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.library.torch.derivatives.autograd_function_graphs import Unusual, traced_apply
from stator.settings import marks


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
        self.marked = set(vm.recorder.graph.nodes) if self.differentiable else set()
        self.calls = vm.recorder.scope.calls

    def marks(self, name: str) -> tuple[Any, ...]:
        """What forward said through ctx.mark_dirty or ctx.mark_non_differentiable."""
        return instance_dict(self.ctx).get(name, ())  # type: ignore[union-attr]


class AfterForward(Continuation):
    """`forward` (or `setup_context` after it) has returned: go on, or finish the call."""

    __slots__ = ("application", "cont", "output", "set_up")

    def __init__(self, application: Application, cont: Any, output: object = None, set_up: bool = False) -> None:
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


def call_member(vm: VM, cls: type, name: str, args: tuple[Any, ...], cont: Any) -> None:
    vm.call(vm.sync(lambda: vm.load_attr(cls, name)), args, {}, cont)


@suspending_rule(torch.autograd.Function.__dict__["apply"].__func__)
def _apply(vm: VM, cont: Any, cls: Any, *inputs: Any, **kwargs: Any) -> None:
    if kwargs:
        raise Break("SB016", f"{cls.__name__}.apply with keyword arguments")
    vm.recorder.refuse_tangents(f"{cls.__name__}.apply")
    if torch._C._are_functorch_transforms_active():
        raise Break("SB016", f"{cls.__name__}.apply inside a functorch transform")
    if marks.allowed_in_graph(cls):
        return call_allowed(vm, apply_of(cls), inputs, {}, cont)
    application = begun(vm, cls, inputs)
    # Inside an inner graph a transform of torch.func may be at work, which asks the class itself for its rules.
    if application.differentiable and vm.recorder.scope.enclosing is None and _overrides(vm, cls, "backward"):
        try:
            return vm.give(traced(vm, application), cont)
        except Unusual:
            application = begun(vm, cls, inputs)
    inputs = application.inputs
    set_grad(vm, False)
    given = inputs if application.separate else (application.ctx, *inputs)
    call_member(vm, cls, "forward", given, AfterForward(application, cont))


@rule(torch._C._FunctionBase.__new__)
def _instance(vm: VM, /, *args: Any, **kwargs: Any) -> Any:
    """`F().apply(x)`: instances are good for nothing else, and torch warns of them."""
    if not args or kwargs or not is_a(args[0], type) or torch.autograd.Function not in mro_of(args[0]):
        raise Break("SB016", "an autograd function in flight, made by the program")
    return torch._C._FunctionBase.__new__(args[0])


def _overrides(vm: VM, cls: type, name: str) -> bool:
    return find(vm, cls, name) is not _SingleLevelFunction.__dict__[name]


def begun(vm: VM, cls: type, inputs: tuple[Any, ...]) -> Application:
    application = Application(vm, cls, inputs)
    if application.separate:
        application.inputs = inputs + missing_defaults(vm, cls, len(inputs))
    return application


def traced(vm: VM, application: Application) -> Any:
    """One node over the graphs of forward and backward."""
    def members(name: str, args: tuple[Any, ...]) -> Any:
        return vm.sync(lambda: call_member(vm, application.cls, name, args, None))

    def as_outputs(tensors: tuple[Any, ...], constant: tuple[Any, ...]) -> Any:
        with torch._C.DisableTorchFunction():
            return Remembered.apply((tensors, (), constant), *application.inputs)

    return traced_apply(vm, application, members, as_outputs)


def missing_defaults(vm: VM, cls: type, given: int) -> tuple[Any, ...]:
    """The defaults of forward's last parameters: with setup_context, apply fills them in."""
    forward = find(vm, cls, "forward")
    function = getattr(forward, "__func__", forward)
    missing = function.__code__.co_argcount - given
    return function_defaults(vm, function)[-missing:] if missing > 0 else ()


# ---------------------------------------------------------------------- without gradients


def without_history(vm: VM, application: Application, output: object) -> Any:
    """What apply makes of forward's result: an input that was not changed comes back as another tensor."""
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


# ---------------------------------------------------------------------- with gradients


@functools.cache
def apply_of(cls: Any) -> Any:
    """The target of the node."""
    def apply(*args: Any) -> Any:
        return cls.apply(*args)
    apply.__name__ = apply.__qualname__ = f"{cls.__name__}_apply"
    return apply


def as_one_node(vm: VM, application: Application, output: object) -> Any:
    name = application.cls.__name__
    if fingerprints(vm, of_graph=False) != application.before:
        raise Break("SB016", f"{name}.forward changes something outside")
    bound = {place: guarded(vm, value, name) for place, value in enumerate(application.inputs)
             if type(value) is not FakeTensor and not is_constant(value)}
    parts = output if type(output) is tuple else (output,)
    if not all(type(part) is FakeTensor or is_constant(part) for part in parts):
        raise Break("SB016", f"{name}.forward returns something else than tensors, with gradients")
    recorder = vm.recorder
    storages, repeatable = withdraw(recorder, application)
    vm.torch_state.change(GRAD_MODE, (application.grad,), {})
    plan = (output, application.marks("dirty_tensors"), application.marks("non_differentiable"))
    with torch._C.DisableTorchFunction():
        result = Remembered.apply(plan, *application.inputs)
    target = bound_apply(application.cls, bound) if bound else apply_of(application.cls)
    given = tuple(value for place, value in enumerate(application.inputs) if place not in bound)
    written = [value for value in given if type(value) is FakeTensor and storage_of(value) in storages]
    node = recorder.record("call_function", target, given, {}, result, written, repeatable)
    if any(type(part) is FakeTensor and part._is_view() for part in (result if type(result) is tuple else (result,))):
        node.meta["is_seam"] = True  # autograd refuses writes to such views, which compilers give another history
    return result


def guarded(vm: VM, value: object, name: str) -> Any:
    """An argument that is nothing for a node of a graph: one that is itself in every call may be bound beforehand."""
    known = is_a(value, enum.Enum) and is_outside(vm, value) \
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


def withdraw(recorder: Recorder, application: Application) -> tuple[set[int], bool]:
    """Take forward's own nodes out of the graph again; placeholders and parts of earlier results stay.

    Out: the storages that they write to, and whether all of them may run twice.
    """
    storages: set[int] = set()
    repeatable = True
    for node in reversed(list(recorder.graph.nodes)):
        if node in application.marked or node.op == "placeholder" or node.users:
            continue
        if node.target is operator.getitem and node.args[0] in application.marked \
                and is_a(node.args[0].meta.get("example_value"), (tuple, list)):
            continue
        storages |= written_storages(node)
        repeatable = repeatable and is_repeatable(node)
        recorder.graph.erase_node(node)
        result = node.meta.get("example_value")
        for part in result if is_a(result, (tuple, list)) else (result,):
            tied = recorder.nodes.get(id(part))
            if tied is node or type(tied) is tuple and tied[0] is node:
                del recorder.nodes[id(part)]
    recorder.scope.calls = application.calls
    return storages, repeatable


@rule(torch._C._functorch.unwrap_if_dead)
def _unwrap_if_dead(vm: VM, tensor: Any, /) -> Any:
    """No functorch transform is active in a trace, so no wrapper can have died in it."""
    return tensor
