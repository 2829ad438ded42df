"""torch.func's derivatives.   grad(f)(x), vjp(f, x), jvp(f, (x,), (t,))  ->  one node that differentiates a graph of f

`f` is interpreted once, on fakes of its arguments, into a graph of its own; the node hands that graph to torch.func.
Tensors of the surrounding program that `f` uses are handed in.  jacrev, jacfwd and hessian are Python over these and
torch.vmap, and are interpreted; the function that vjp returns runs the graph again when it is called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch.eager_transforms import (
    _jvp_with_argnums,
    _slice_argnums,
    _vjp_with_argnums,
    grad_and_value_impl,
)
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.breaks import Break
from stator.graph.analysis.may_fail import writes_outside
from stator.graph.record.subgraph import Subgraph
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.torch.derivatives.transformed_calls import record
from stator.native.torch_ops import draws_inside
from stator.shapes.symbolic_values import specialise


class Differentiated:
    """A function captured on fresh fakes of the arguments it is differentiated by."""

    def __init__(self, vm: VM, what: str, function: Callable[..., Any], args: tuple[Any, ...],
                 kwargs: dict[str, Any], argnums: object, has_aux: bool) -> None:
        for value in (args, kwargs, argnums):
            vm.heap.expose_deep(value)
        argnums = pytree.tree_map(specialise, argnums)
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            raise Break("SB016", f"torch.func.{what} where gradients are off")
        chosen = args
        if argnums is not None:
            chosen = vm.native_unhooked(_slice_argnums, (args, argnums), {"as_tuple": False})
        self.wrt, self.spec = pytree.tree_flatten(chosen)
        if not self.wrt or not all(type(value) is FakeTensor and _is_real(value) for value in self.wrt):
            raise Break("SB016", f"torch.func.{what} by something else than floating-point tensors")
        with Subgraph(vm.recorder) as part:
            examples = [_example(part, i, value) for i, value in enumerate(self.wrt)]
            fresh = pytree.tree_unflatten(examples, self.spec)
            result = vm.call_sync(function, _replaced(args, fresh, argnums), kwargs)
            vm.heap.expose_deep(result)
            if has_aux and not (type(result) is tuple and len(result) == 2):
                raise Break("SB016", f"torch.func.{what} with has_aux of a function that returns no pair")
            value, aux = result if has_aux else (result, ())
            self.outputs, self.out_spec = pytree.tree_flatten(value)
            self.aux, self.aux_spec = pytree.tree_flatten(aux)
            if not all(type(each) is FakeTensor for each in (*self.outputs, *self.aux)):
                raise Break("SB016", f"torch.func.{what} of a function that returns something else than tensors")
            if not self.outputs or not all(map(_is_real, self.outputs)):
                raise Break("SB016", f"torch.func.{what} of a function without a floating-point result")
            if writes_outside({node for node in part.graph.nodes if node.op != "placeholder"}):
                raise Break("SB016", f"torch.func.{what} of a function that writes to a tensor from outside it")
            self.module = part.finish([*self.outputs, *self.aux])
        self.operands = (*self.wrt, *part.lifted)
        self.count, self.results = len(self.wrt), len(self.outputs)

    def call(self, *tensors: Any) -> Any:
        """The function as torch.func wants it: (outputs, aux)."""
        made = self.module(*tensors)
        return tuple(made[:self.results]), tuple(made[self.results:])


def _is_real(value: Any) -> bool:
    with torch._C.DisableTorchFunction():
        return value.is_floating_point() or value.is_complex()


def _example(part: Subgraph, index: int, value: Any) -> Any:
    """A fake with a history of its own, so that the trace knows where derivatives flow."""
    with torch._C.DisableTorchFunction():
        example = value.detach().requires_grad_().clone()
    part.bind(f"wrt_{index}", example)
    return example


def _replaced(args: tuple[Any, ...], fresh: Any, argnums: Any) -> tuple[Any, ...]:
    if argnums is None:
        return tuple(fresh)
    positions, values = ((argnums,), (fresh,)) if type(argnums) is int else (argnums, fresh)
    changed = list(args)
    for position, value in zip(positions, values, strict=True):
        changed[position] = value
    return tuple(changed)


# ---------------------------------------------------------------------- grad


@rule(grad_and_value_impl)
def _grad_and_value(vm: VM, func: Any, argnums: Any, has_aux: Any, args: Any, kwargs: Any) -> Any:
    inner = Differentiated(vm, "grad", func, tuple(args), dict(kwargs), argnums, has_aux)
    if inner.results != 1 or inner.outputs[0].dim() or pytree.tree_structure(0) != inner.out_spec:
        raise Break("SB016", "torch.func.grad of a function whose result is no scalar tensor")
    results = record(vm, grad_call(inner), inner.operands)
    grads = pytree.tree_unflatten(list(results[:inner.count]), inner.spec)
    value = results[inner.count]
    aux = pytree.tree_unflatten(list(results[inner.count + 1:]), inner.aux_spec)
    return (grads, (value, aux)) if has_aux else (grads, value)


def grad_call(inner: Differentiated) -> Callable[..., Any]:
    def scalar(*tensors: object) -> Any:
        (value,), aux = inner.call(*tensors)
        return value, aux

    run = torch.func.grad_and_value(scalar, argnums=tuple(range(inner.count)), has_aux=True)

    def grad_and_value(*tensors: object) -> Any:
        grads, (value, aux) = run(*tensors)
        return (*grads, value, *aux)
    return grad_and_value


# ---------------------------------------------------------------------- jvp


@rule(_jvp_with_argnums)
def _jvp(vm: VM, func: Any, primals: Any, tangents: Any, argnums: Any, *, strict: Any = False, has_aux: Any) -> Any:
    argnums = pytree.tree_map(specialise, argnums)
    if type(primals) is not tuple:
        raise Break("SB016", "torch.func.jvp with primals that are no tuple")
    vm.heap.expose_deep(tangents)
    inner = Differentiated(vm, "jvp", func, primals, {}, argnums, has_aux)
    flat, spec = pytree.tree_flatten(tangents)
    chosen = _slice_argnums(primals, argnums) if argnums is not None else primals
    if spec != pytree.tree_structure(chosen) or not all(type(value) is FakeTensor for value in flat):
        raise Break("SB016", "torch.func.jvp with tangents unlike the primals")
    results = record(vm, jvp_call(inner, strict), (*inner.operands, *flat))
    count = inner.results
    outputs, tangents_out, aux = list(results[:count]), list(results[count:2 * count]), list(results[2 * count:])
    made = (pytree.tree_unflatten(outputs, inner.out_spec), pytree.tree_unflatten(tangents_out, inner.out_spec))
    return (*made, pytree.tree_unflatten(aux, inner.aux_spec)) if has_aux else made


def jvp_call(inner: Differentiated, strict: bool) -> Callable[..., Any]:
    count, total = inner.count, len(inner.operands)

    def jvp(*tensors: object) -> Any:
        primals, rest, tangents = tensors[:count], tensors[count:total], tensors[total:]
        outputs, derivatives, aux = torch.func.jvp(lambda *given: inner.call(*given, *rest), primals, tangents,
                                                   strict=strict, has_aux=True)
        return (*outputs, *derivatives, *aux)
    return jvp


# ---------------------------------------------------------------------- vjp


@rule(_vjp_with_argnums)
def _vjp(vm: VM, func: Any, *primals: Any, argnums: Any = None, has_aux: Any = False) -> Any:
    inner = Differentiated(vm, "vjp", func, primals, {}, argnums, has_aux)
    if draws_inside(inner.module):
        raise Break("SB016", "torch.func.vjp of a function that draws random numbers")
    results = record(vm, forward_call(inner), inner.operands)
    outputs = pytree.tree_unflatten(list(results[:inner.results]), inner.out_spec)
    pull = functools.partial(pull_back, vjp_call(inner), inner.operands)
    if has_aux:
        aux = pytree.tree_unflatten(list(results[inner.results:]), inner.aux_spec)
        return (outputs, pull, aux)
    return (outputs, pull)


def forward_call(inner: Differentiated) -> Callable[..., Any]:
    def forward(*tensors: object) -> Any:
        return inner.module(*tensors)
    return forward


def vjp_call(inner: Differentiated) -> Any:
    total, count = len(inner.operands), inner.count

    def vjp(*tensors: object) -> Any:
        primals, rest, cotangents = tensors[:count], tensors[count:total], tensors[total:]
        _, pull, _ = torch.func.vjp(lambda *given: inner.call(*given, *rest), *primals, has_aux=True)
        return pull(tuple(cotangents))

    vjp.specs = (inner.out_spec, inner.spec)  # type: ignore[attr-defined]
    return vjp


def pull_back(vjp: Any, operands: tuple[Any, ...], cotangents: object, retain_graph: bool = True,
              create_graph: bool | None = None) -> Any:
    """What vjp returns, bound to its operands: the derivatives for these cotangents."""
    out_spec, spec = vjp.specs
    flat, given = pytree.tree_flatten(cotangents)
    if given != out_spec:
        raise RuntimeError(
            f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
            f"cotangents: {pytree.treespec_pprint(given)}, primal output: {pytree.treespec_pprint(out_spec)}")
    return pytree.tree_unflatten(list(vjp(*operands, *flat)), spec)


@rule(pull_back)
def _pull_back(vm: VM, vjp: Any, operands: Any, cotangents: Any, retain_graph: Any = True,
               create_graph: Any = None) -> Any:
    vm.heap.expose_deep(cotangents)
    out_spec, spec = vjp.specs
    flat, given = pytree.tree_flatten(cotangents)
    if given != out_spec or not all(type(value) is FakeTensor for value in flat) or create_graph is False:
        raise Break("SB016", "the function that torch.func.vjp returned, called in another way")
    results = record(vm, vjp, (*operands, *flat))
    return pytree.tree_unflatten(list(results), spec)
