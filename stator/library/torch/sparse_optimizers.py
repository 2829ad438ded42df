"""Rules for optimizers over sparse gradients.   SparseAdam, Adagrad  ->  one operator that runs torch's own function

How many places a coalesced gradient has, its values decide, so a graph cannot hold the steps of such an update.  The
operator writes to parameters and to the state of the optimizer, and compilers cut the graph at it.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import _functional as functional
from torch.optim import adagrad

from stator.graph.record.refused_operations import is_sparse
from stator.interp.frame import Continuation
from stator.interp.rule_registry import suspending_rule
from stator.interp.vm import VM
from stator.library.torch.layers_and_optimizers import between_pieces, can_be_cut
from stator.shapes.symbolic_values import SYMBOLIC

_ADAM = "sparse_adam(Tensor(a!)[] written, Tensor[] gradients, SymInt[] steps, float eps, float beta1, float beta2, " \
        "float lr, Tensor? rate, bool maximize) -> ()"
_ADAGRAD = "sparse_adagrad(Tensor(a!)[] written, Tensor[] gradients, float lr, Tensor? rate, float lr_decay, " \
           "float eps, bool maximize) -> ()"
_single_adagrad: types.FunctionType = adagrad._single_tensor_adagrad  # type: ignore[attr-defined]
_PLAIN = {"has_sparse_grad": True, "differentiable": False, "has_complex": False, "grad_scale": None, "found_inf": None}
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
    _single_adagrad(parameters, gradients, sums, steps, None, None, lr=lr if rate is None else rate, weight_decay=0,
                    lr_decay=lr_decay, eps=eps, has_sparse_grad=True, maximize=maximize, differentiable=False,
                    has_complex=False)


for _schema, _kernel in ((_ADAM, _adam), (_ADAGRAD, _adagrad)):
    _name = _schema.partition("(")[0]
    _library.define(_schema)
    _library.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"stator::{_name}", lambda *args: None, lib=_library)
    _operator = getattr(torch.ops.stator, _name).default
    _operator.never_fails = True  # dense tensors, and gradients of lookups that did not fail
    torch.fx.node.has_side_effect(_operator)


@suspending_rule(functional.sparse_adam)
def _sparse_adam(vm: VM, cont: Continuation | None, /, *args: object, **kwargs: object) -> None:
    given = arguments_of(functional.sparse_adam, args, kwargs)
    steps, *lists = collected(vm, given, "state_steps params exp_avgs exp_avg_sqs grads")
    numbers = {name: given.get(name) for name in ("eps", "beta1", "beta2", "lr")}
    if not all(type(each) in (int, torch.SymInt) for each in steps) or not may_be_one_node(vm, lists, numbers, given):
        return vm.push(vm.frame_for(functional.sparse_adam, args, kwargs), cont)
    rate = numbers.pop("lr")
    give_node(vm, cont, torch.ops.stator.sparse_adam.default, lists,
              (steps, *numbers.values(), *number_and_tensor(rate), given["maximize"]))


@suspending_rule(_single_adagrad)
def _sparse_adagrad(vm: VM, cont: Continuation | None, /, *args: object, **kwargs: object) -> None:
    given = arguments_of(_single_adagrad, args, kwargs)
    lists = collected(vm, given, "params state_sums state_steps grads")
    numbers = {name: given.get(name) for name in ("lr", "lr_decay", "eps")}
    decay = given.get("weight_decay")  # which torch refuses beside sparse gradients
    plain = all(given.get(name) is value for name, value in _PLAIN.items())
    if not plain or type(decay) not in (int, float) or decay != 0 or not may_be_one_node(vm, lists, numbers, given):
        return vm.push(vm.frame_for(_single_adagrad, args, kwargs), cont)
    rate, *others = numbers.values()
    give_node(vm, cont, torch.ops.stator.sparse_adagrad.default, lists,
              (*number_and_tensor(rate), *others, given["maximize"]))


def arguments_of(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
                 ) -> dict[str, object]:
    try:
        return dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except TypeError:  # the function itself raises
        return {}


def number_and_tensor(rate: object) -> tuple[object, object]:
    return (0.0, rate) if type(rate) is FakeTensor else (rate, None)


def collected(vm: VM, given: dict[str, object], names: str) -> list[list[object]]:
    return [vm.collect(each) if type(each := given.get(name)) in (list, tuple) else [None] for name in names.split()]


def may_be_one_node(vm: VM, lists: list[list[Any]], numbers: dict[str, object], given: dict[str, object]) -> bool:
    """Whether a graph may have the update as one node: of plain dense tensors, by gradients of which one is sparse."""
    if torch.is_grad_enabled() or vm.modes.active or type(given.get("maximize")) is not bool:
        return False
    if vm.recorder.scope.enclosing is not None or not (
            vm.recorder.backend.in_order or can_be_cut(vm, with_numbers=True)):
        return False
    if not all(type(each) is FakeTensor for some in lists for each in some) or len({len(some) for some in lists}) > 1:
        return False
    if not all(type(number) in (int, float, *SYMBOLIC) or name == "lr" and type(number) is FakeTensor
               for name, number in numbers.items()):
        return False
    *written, gradients = lists
    with torch._C.DisableTorchFunction():
        return any(map(is_sparse, gradients)) and not any(is_sparse(each) for some in written for each in some) \
            and not any(each.is_complex() for each in gradients)


def give_node(vm: VM, cont: Continuation | None, operator: OpOverload, lists: list[list[Any]], rest: tuple[object, ...]
              ) -> None:
    args = [each for some in lists[:-1] for each in some], lists[-1], *rest
    vm.recorder.propagation.require_exact()
    if vm.recorder.backend.in_order:
        vm.torch_call(operator, args, {})
    else:
        between_pieces(vm, operator, args, {}, True)
    vm.give(None, cont)
