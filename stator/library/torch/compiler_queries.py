"""Rules for torch functions that are not tensor computations: global state, questions about the compiler."""

from __future__ import annotations

import sys
from typing import Any

import torch

from stator.breaks import Break
from stator.host.value_kinds import is_a
from stator.interp.rule_registry import RULES, refuse, rule, suspending_rule
from stator.interp.torch_function_protocol import overriding
from stator.interp.vm import VM
from stator.settings import marks
from stator.strategy import Strategy

# ---------------------------------------------------------------------- "am I being compiled?"


@rule(marks.is_compiling, torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, torch._utils.is_compiling,
      unasked=True)
def _is_compiling(vm: VM) -> bool:
    """torch's optimisers ask in order to spare another tracer scalars; here they compute as they do eagerly."""
    optimiser = vm.frame.scope.namespace.get("__name__", "").startswith("torch.optim")
    shown = Strategy.COMPILING_SHOWN not in vm.turned_off and not optimiser
    vm.policy.compiling_shown = vm.policy.compiling_shown or shown
    return shown


@rule(torch.compiler.is_exporting, torch.jit.is_scripting, torch.jit.is_tracing, torch._C._is_tracing, unasked=True)
def _no(vm: VM) -> bool:
    return False


@rule(torch._C._get_tracing_state, torch._C._log_api_usage_once, unasked=True)
def _nothing(vm: VM, /, *args: Any, **kwargs: Any) -> None:
    return None


# ---------------------------------------------------------------------- __torch_function__


@rule(torch._C._has_torch_function, torch.overrides.has_torch_function, unasked=True)
def _has_torch_function(vm: VM, values: Any, /) -> bool:
    """Plain tensors have none of their own; of the modes, the tracer's must not show."""
    return bool(vm.modes.active or overriding(vm, vm.collect(values)))


@rule(torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic,
      torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic, unasked=True)
def _has_torch_function_variadic(vm: VM, /, *values: Any) -> bool:
    single = [value for value in values if type(value) not in (list, tuple)]
    return bool(vm.modes.active or overriding(vm, single))


@rule(marks.graph_break)
def _graph_break(vm: VM, msg: Any = "") -> None:
    raise Break("SB009", msg if type(msg) is str else "", untouched=True)


# ---------------------------------------------------------------------- grad mode


@rule(torch.is_grad_enabled, getattr(torch._C, "is_grad_enabled", torch.is_grad_enabled), unasked=True)
def _is_grad_enabled(vm: VM) -> bool:
    return torch.is_grad_enabled()


@rule(torch.is_tensor, unasked=True)
def _is_tensor(vm: VM, obj: Any, /) -> bool:
    return is_a(obj, torch.Tensor)


@suspending_rule(torch.Tensor.__hash__)
def _tensor_hash(vm: VM, cont: Any, self: Any) -> None:
    vm.call(id, (self,), {}, cont)


BACKWARD = "a backward pass inside captured code"
refuse(torch.Tensor.backward, torch.autograd.backward, code="SB016", detail=BACKWARD)


# ---------------------------------------------------------------------- another tracer in the same process


def ignore_peer_bookkeeping() -> None:
    """torch's own tracer, once used, patches nn.Module.__init__ to number modules; that is none of a program's doing.

    Looked up in sys.modules at the start of each trace: Stator never imports it.
    """
    module = sys.modules.get("torch._dynamo.mutation_guard")
    tracker = getattr(module, "GenerationTracker", None)
    tag = getattr(getattr(tracker, "tag", None), "__func__", None)
    if tag is not None and id(tag) not in RULES:
        rule(tag)(_nothing)
