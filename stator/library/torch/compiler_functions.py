"""Rules for functions that query or steer a compiler.   torch.compiler.is_compiling(), torch.compile(f), skip_frame()

A function that compiles others (`makes_compiled`) is called for real; a call of its result is part of the trace.  The
residual makes it again where it outlives the call.
"""

from __future__ import annotations

import functools
import sys
import types
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.modules.lazy

from stator import _core
from stator.breaks import Break, Strategy
from stator.heap.raw_access import CONSTANT_TYPES
from stator.host.value_kinds import is_a
from stator.interp.frame import Frame
from stator.interp.rule_registry import INTERPRETED, RULES, refuse, rule, suspending_rule
from stator.interp.torch_function_protocol import overriding
from stator.interp.vm import VM
from stator.settings import marks, stance
from stator.source import Pinned

BACKWARD = "a backward pass inside captured code"
_MODULE_CALL = torch.nn.Module._call_impl.__code__
_OF_ALL_MODULES: dict[int, bool] = torch.nn.modules.module._global_forward_hooks_always_called
_ENCODER = torch.nn.TransformerEncoder.forward.__code__


def namespace_name(frame: Frame) -> str:
    return "" if frame.scope is None else str(frame.scope.namespace.get("__name__"))


def must_call_hooks(vm: VM, frame: Frame) -> bool:
    """Whether the call of a module asks that has hooks which are called where `forward` raises, too.

    Without them all ways are alike, and the one without a handler is captured whole.
    """
    if frame.code is not _MODULE_CALL:
        return False
    module = frame.locals[0].cell_contents  # the function inside uses it, too
    tracker = vm.heap.by_standin.get(id(module))
    vm.heap.guard_call(holds_items, bool(_OF_ALL_MODULES), Pinned(_OF_ALL_MODULES))
    if tracker is not None:
        module = tracker.original
        vm.heap.guard_call(always_calls_hooks, always_calls_hooks(module), tracker.source)
    tables = (_OF_ALL_MODULES, _own_table(module))
    known = (vm.heap.by_original.get(id(table)) for table in tables)
    return any(table if each is None else each.standin for table, each in zip(tables, known, strict=True))


def holds_items(table: dict[int, bool]) -> bool:
    return bool(table)


def always_calls_hooks(module: torch.nn.Module) -> bool:
    """A pure reader for guards."""
    return bool(_own_table(module))


def _own_table(module: torch.nn.Module) -> dict[int, bool]:
    found: dict[int, bool] = object.__getattribute__(module, "__dict__").get("_forward_hooks_always_called", {})
    return found


def may_compute_on_nested_tensors(vm: VM, frame: Frame) -> bool:
    """Whether a TransformerEncoder asks, which computes on nested tensors in eager: masked places become zeros.

    It does not where autograd follows a parameter, so a call that trains or keeps gradients on is captured.
    """
    if frame.code is not _ENCODER:
        return False
    encoder = frame.locals[0]
    tracker = vm.heap.by_standin.get(id(encoder))
    named = torch.nn.Module.named_parameters(encoder if tracker is None else tracker.original)
    with torch._C.DisableTorchFunction():
        return not (torch.is_grad_enabled() and any(is_followed(vm, parameter) for _, parameter in named))


def is_followed(vm: VM, parameter: torch.Tensor) -> bool:
    """The flag of a parameter from outside, as the call may have changed it."""
    tracker = vm.heap.by_original.get(id(parameter))
    return (parameter if tracker is None else tracker.standin).requires_grad  # type: ignore[no-any-return]


@rule(marks.is_compiling, torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, torch._utils.is_compiling,
      unasked=True)
def _is_compiling(vm: VM) -> bool:
    """Optimisers, torch's and those that its hooks call, avoid numbers then; here they compute as they do eagerly.

    So does nn.Module's own call, which leaves out hooks that are always called where `forward` raises, and a
    TransformerEncoder, which computes other values.
    """
    frame: Frame | None = vm.running
    in_module_call = frame is not None and (
        must_call_hooks(vm, frame) or may_compute_on_nested_tensors(vm, frame))
    while frame is not None and not namespace_name(frame).startswith("torch.optim"):
        frame = frame.parent or frame.outer
    shown = Strategy.COMPILING_SHOWN not in vm.turned_off and frame is None and not in_module_call
    vm.policy.compiling_shown = vm.policy.compiling_shown or shown
    return shown


@rule(torch._C._get_tracing_state, torch._C._log_api_usage_once, unasked=True)
def _nothing(vm: VM, /, *args: object, **kwargs: object) -> None:
    return None


rule(torch.compiler.is_exporting, torch.jit.is_scripting, torch.jit.is_tracing, torch._C._is_tracing, unasked=True)(
    lambda vm: False)


@rule(torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic,
      torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic, unasked=True)
def _has_torch_function_variadic(vm: VM, /, *values: object) -> bool:
    single = [value for value in values if type(value) not in (list, tuple)]
    return bool(vm.modes.active or overriding(vm, single))


@rule(marks.graph_break)
def _graph_break(vm: VM, msg: object = "") -> None:
    raise Break("SB009", msg if type(msg) is str else "", untouched=True)


# Plain tensors have none of their own; of the modes, the tracer's must not show
rule(torch._C._has_torch_function, torch.overrides.has_torch_function, unasked=True)(
    lambda vm, values, /: bool(vm.modes.active or overriding(vm, vm.collect(values))))


rule(torch.is_grad_enabled, getattr(torch._C, "is_grad_enabled", torch.is_grad_enabled), unasked=True)(
    lambda vm: torch.is_grad_enabled())
rule(torch.is_tensor, unasked=True)(lambda vm, obj, /: is_a(obj, torch.Tensor))
suspending_rule(torch.Tensor.__hash__)(lambda vm, cont, self: vm.call(id, (self,), {}, cont))


def ignore_peer_bookkeeping() -> None:
    """Ignore the patch of nn.Module.__init__ by torch's own tracer, found in sys.modules, never imported."""
    module = sys.modules.get("torch._dynamo.mutation_guard")
    tracker = getattr(module, "GenerationTracker", None)
    tag = getattr(getattr(tracker, "tag", None), "__func__", None)
    if tag is not None and id(tag) not in RULES:
        rule(tag)(_nothing)


@rule(marks.set_error_policy)
def _set_error_policy(vm: VM, value: Any) -> Any:
    """The trace's own policy changes; the residual leaves the thread's as the trace leaves its own."""
    before, vm.policy.error_policy = vm.policy.error_policy, value
    return before


@rule(marks.skip_frame)
def _skip_frame(vm: VM, reason: object = "") -> None:
    raise Break("SB023", f"the program called stator.skip_frame({reason!r})" if reason else "")


@rule(stance.apply)
def _stance(vm: VM, stance: object, backend: object = None) -> None:
    raise Break("SB022", f"the stance becomes {stance!r}")


refuse(stance.set_stance.__init__, stance.set_stance.__enter__, stance.set_stance.__exit__, code="SB022",
       detail="stator.set_stance in captured code")
# The frame with the region runs natively, and its callers go on captured.
refuse(marks.DisabledContext.__enter__, marks.DisabledBlock.__enter__, code="SB010", detail="a stator.disable() region",
       whole_frame=True)


@rule(torch.nn.modules.lazy.LazyModuleMixin._infer_parameters)
def _initialise_lazily(vm: VM, self: object, *args: object, **kwargs: object) -> Any:
    """A lazy module gets its parameters, and another class, in its first call; that call runs as it is."""
    if vm.heap.tracker_of(self) is not None:
        raise Break("SB010", "a lazy module is initialised in this call", once=True)
    return INTERPRETED


rule(marks.error_policy)(lambda vm: vm.policy.error_policy)


@dataclass(eq=False)
class Making:
    """A compiled function made in the trace, the call that made it, and the attributes it had then."""

    compiled: Any
    maker: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    attributes: dict[str, Any]


def makes_compiled(maker: Any) -> None:
    """Register `maker(function, **settings)`; without a function it makes the decorator."""
    @rule(maker)
    def make(vm: VM, /, model: Any = None, *args: object, **settings: Any) -> Any:
        require_plain(vm, settings)
        if args or model is not None and type(model) is not types.FunctionType:
            raise refused("of something else than a function")
        if model is None:
            return functools.partial(maker, **settings)
        try:
            made = maker(model, **settings)
        except Exception as error:  # which of its arguments it refuses, eager says
            raise refused("that it refuses") from error
        if type(made) is not _core.CompiledFunction:
            raise refused("that makes something else than a compiled function")
        vm.fresh[id(made)] = made
        vm.functions.compiled_inside[id(made)] = Making(made, maker, (model,), settings, dict(vars(made)))
        return made


def refused(what: str) -> Break:
    return Break("SB010", f"a call of compile {what}")


def require_plain(vm: VM, settings: dict[str, Any]) -> None:
    """Break at settings that are neither constants nor outside functions: they outlive the trace."""
    for name, value in settings.items():
        if type(value) not in CONSTANT_TYPES and not (type(value) is types.FunctionType and id(value) not in vm.fresh):
            raise refused(f"whose argument {name!r} is no constant")
