"""Rules for torch functions that are not tensor computations: global state, questions about the compiler."""

from __future__ import annotations

import sys
from typing import Any

import torch

from stator.breaks import Break
from stator.host.value_kinds import is_a
from stator.interp.rule_registry import RULES, rule
from stator.interp.torch_function_protocol import overriding
from stator.interp.vm import VM
from stator.settings import marks
from stator.strategy import Strategy

# ---------------------------------------------------------------------- "am I being compiled?"


def _constant(value: Any) -> Any:
    def answer(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        vm.give(value, cont)
    return answer


_COMPILING = [marks.is_compiling, torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling,
              torch._utils.is_compiling]




@rule(*_COMPILING)
def _is_compiling(vm: VM, args: Any, kwargs: Any) -> Any:
    """torch's optimisers ask in order to spare another tracer scalars; here they compute as they do eagerly."""
    optimiser = vm.frame.scope.namespace.get("__name__", "").startswith("torch.optim")
    shown = Strategy.COMPILING_SHOWN not in vm.turned_off and not optimiser
    vm.policy.compiling_shown = vm.policy.compiling_shown or shown
    return shown


rule(torch.compiler.is_exporting, torch.jit.is_scripting, torch.jit.is_tracing, torch._C._is_tracing,
     torch._C._get_tracing_state)(_constant(False))
rule(torch._C._get_tracing_state)(_constant(None))
rule(torch._C._log_api_usage_once)(_constant(None))


# ---------------------------------------------------------------------- __torch_function__


@rule(torch._C._has_torch_function, torch.overrides.has_torch_function)
def _has_torch_function(vm: VM, args: Any, kwargs: Any) -> Any:
    """Plain tensors have none of their own; of the modes, the tracer's must not show."""
    return bool(vm.modes.active or overriding(vm, vm.collect(args[0])))


@rule(torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic,
      torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic)
def _has_torch_function_variadic(vm: VM, args: Any, kwargs: Any) -> Any:
    single = [value for value in args if type(value) not in (list, tuple)]
    return bool(vm.modes.active or overriding(vm, single))


@rule(marks.graph_break)
def _graph_break(vm: VM, args: Any, kwargs: Any) -> Any:
    message = args[0] if args else kwargs.get("msg", "")
    raise Break("SB009", message if type(message) is str else "")


# ---------------------------------------------------------------------- grad mode


@rule(torch.is_grad_enabled, getattr(torch._C, "is_grad_enabled", torch.is_grad_enabled), arity=(0,))
def _is_grad_enabled(vm: VM, args: Any, kwargs: Any) -> Any:
    return torch.is_grad_enabled()


@rule(torch.is_tensor)
def _is_tensor(vm: VM, args: Any, kwargs: Any) -> Any:
    return is_a(args[0], torch.Tensor)


@rule(torch.Tensor.__hash__)
def _tensor_hash(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    vm.call(id, args, kwargs, cont)


BACKWARD = "a backward pass inside captured code"


@rule(torch.Tensor.backward, torch.autograd.backward)
def _autograd(vm: VM, args: Any, kwargs: Any) -> Any:
    raise Break("SB016", BACKWARD)


# ---------------------------------------------------------------------- another tracer in the same process


def ignore_peer_bookkeeping() -> None:
    """torch's own tracer, once used, patches nn.Module.__init__ to number modules; that is none of a program's doing.

    Looked up in sys.modules at the start of each trace: Stator never imports it.
    """
    module = sys.modules.get("torch._dynamo.mutation_guard")
    tracker = getattr(module, "GenerationTracker", None)
    tag = getattr(getattr(tracker, "tag", None), "__func__", None)
    if tag is not None and id(tag) not in RULES:
        rule(tag)(_constant(None))
