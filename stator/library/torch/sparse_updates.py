"""Rules for optimizers over sparse gradients.   SparseAdam, Adagrad  ->  one operator that runs torch's own function

How many places a coalesced gradient has, its values decide, so a graph cannot hold the steps of such an update.  The
operator writes to parameters and to the state of the optimizer, and compilers cut the graph at it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import _functional as functional
from torch.optim import adagrad

from stator.breaks import Break
from stator.graph.record.refused_operations import is_sparse
from stator.interp.frame import Continuation
from stator.interp.rule_registry import suspending_rule
from stator.interp.vm import VM
from stator.library.torch.layers_and_optimizers import between_pieces, can_be_cut
from stator.shapes.symbolic_values import SYMBOLIC

_ADAM = "sparse_adam(Tensor(a!)[] written, Tensor[] gradients, SymInt[] steps, float eps, float beta1, float beta2, " \
        "float lr, Tensor? rate, bool maximize) -> ()"
_ADAGRAD = "sparse_adagrad(Tensor(a!)[] written, Tensor[] gradients, float lr, Tensor? rate, float lr_decay, float eps, " \
           "bool maximize) -> ()"
_single_adagrad: Any = adagrad._single_tensor_adagrad  # type: ignore[attr-defined]
_library = torch.library.Library("stator", "FRAGMENT")


def _thirds(written: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Parameters and two states of each."""
    count = len(written) // 3
    return [written[:count], written[count:2 * count], written[2 * count:]]


@torch.no_grad()
def _adam(written: list[torch.Tensor], gradients: list[torch.Tensor], steps: list[int], eps: float, beta1: float,
          beta2: float, lr: float, rate: torch.Tensor | None, maximize: bool) -> None:
    parameters, averages, squares = _thirds(written)
    functional.sparse_adam(parameters, gradients, averages, squares, list(steps), eps=eps, beta1=beta1, beta2=beta2,
                           lr=lr if rate is None else rate, maximize=maximize)  # type: ignore[arg-type]


@torch.no_grad()
def _adagrad(written: list[torch.Tensor], gradients: list[torch.Tensor], lr: float, rate: torch.Tensor | None,
             lr_decay: float, eps: float, maximize: bool) -> None:
    parameters, sums, steps = _thirds(written)
    _single_adagrad(parameters, gradients, sums, steps, None, None, lr=lr if rate is None else rate, weight_decay=0, lr_decay=lr_decay, eps=eps,
                    has_sparse_grad=True, maximize=maximize, differentiable=False, has_complex=False)


for _schema, _kernel in ((_ADAM, _adam), (_ADAGRAD, _adagrad)):
    _name = _schema.partition("(")[0]
    _library.define(_schema)
    _library.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"stator::{_name}", lambda *args: None, lib=_library)
    torch.fx.node.has_side_effect(getattr(torch.ops.stator, _name).default)


@suspending_rule(functional.sparse_adam)
def _sparse_adam(vm: VM, cont: Continuation | None, params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any,
                 state_steps: Any, *, eps: Any, beta1: Any, beta2: Any, lr: Any, maximize: Any) -> None:
    numbers = {"eps": eps, "beta1": beta1, "beta2": beta2, "lr": lr}
    rate = lr if type(lr) is FakeTensor else None
    steps, *lists = collected(vm, [state_steps, params, exp_avgs, exp_avg_sqs, grads])
    if all(type(each) is int or type(each) is torch.SymInt for each in steps) and maximize in (True, False) \
            and may_be_one_node(vm, lists, numbers):
        return give_node(vm, cont, torch.ops.stator.sparse_adam.default, lists,
                         (steps, eps, beta1, beta2, 0.0 if rate is not None else lr, rate, bool(maximize)))
    vm.push(vm.frame_for(functional.sparse_adam, (params, grads, exp_avgs, exp_avg_sqs, state_steps),
                         {**numbers, "maximize": maximize}), cont)


@suspending_rule(_single_adagrad)
def _sparse_adagrad(vm: VM, cont: Continuation | None, params: Any, grads: Any, state_sums: Any, state_steps: Any,
                    grad_scale: Any, found_inf: Any, *, lr: Any, weight_decay: Any, lr_decay: Any, eps: Any,
                    has_sparse_grad: Any, maximize: Any, differentiable: Any, has_complex: Any) -> None:
    numbers = {"lr": lr, "lr_decay": lr_decay, "eps": eps}
    if has_sparse_grad is True and maximize in (True, False) and grad_scale is None and found_inf is None \
            and type(weight_decay) in (int, float) and weight_decay == 0 and not differentiable and not has_complex:
        lists = collected(vm, [params, state_sums, state_steps, grads])
        if may_be_one_node(vm, lists, numbers):
            rate = lr if type(lr) is FakeTensor else None
            return give_node(vm, cont, torch.ops.stator.sparse_adagrad.default, lists,
                             (0.0 if rate is not None else lr, rate, lr_decay, eps, bool(maximize)))
    vm.push(vm.frame_for(_single_adagrad, (params, grads, state_sums, state_steps, grad_scale, found_inf), {
        **numbers, "weight_decay": weight_decay, "has_sparse_grad": has_sparse_grad, "maximize": maximize,
        "differentiable": differentiable, "has_complex": has_complex}), cont)


def collected(vm: VM, lists: list[Any]) -> list[list[Any]]:
    return [vm.collect(each) if type(each) in (list, tuple) else [None] for each in lists]


def may_be_one_node(vm: VM, lists: list[list[Any]], numbers: dict[str, Any]) -> bool:
    """Whether a graph may have the update as one node: of plain dense tensors, by gradients of which one is sparse."""
    if torch.is_grad_enabled() or vm.modes.active or not (vm.recorder.backend.in_order or can_be_cut(vm, with_numbers=True)):
        return False
    if not all(type(each) is FakeTensor for some in lists for each in some) or len({len(some) for some in lists}) > 1 \
            or not all(type(number) in (int, float) or type(number) in SYMBOLIC or name == "lr" and
                       type(number) is FakeTensor for name, number in numbers.items()):
        return False
    *written, gradients = lists
    with torch._C.DisableTorchFunction():
        return any(map(is_sparse, gradients)) and not any(is_sparse(each) for some in written for each in some) \
            and not any(each.is_complex() for each in gradients)


def give_node(vm: VM, cont: Continuation | None, operator: Any, lists: list[list[Any]], rest: tuple[Any, ...]) -> None:
    args = [each for some in lists[:-1] for each in some], lists[-1], *rest
    if vm.recorder.scope.enclosing is not None:
        raise Break("SB017", "an update by sparse gradients in an inner graph")
    vm.recorder.propagation.require_exact()
    if vm.recorder.backend.in_order:
        vm.torch_call(operator, args, {})
    else:
        between_pieces(vm, operator, args, {}, True)
    vm.give(None, cont)
