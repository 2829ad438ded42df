"""Rules for torch.func.   grad(f)(x), vjp(f, x), vmap(f)(x, y)  ->  one node that differentiates or maps a graph of f

`f` is interpreted once, on fakes of its arguments (for vmap: of one slice), into a graph of its own that the node hands
to torch.func.  jacrev, jacfwd and hessian are interpreted.  Where torch's rules for transforms refuse symbolic numbers,
these are specialised; where they fail on symbolic sizes, it breaks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch import eager_transforms
from torch._functorch.vmap import _process_batched_inputs, vmap_impl
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.breaks import Break
from stator.graph.analysis.may_fail import writes_outside
from stator.graph.analysis.mutation import Observation
from stator.graph.record.subgraph import Subgraph
from stator.interp.frame import Raised
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.torch.higher_order_operators import watched
from stator.native.torch_ops import draws_inside
from stator.shapes.symbolic_values import SYMBOLIC, specialise


def record(vm: VM, target: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run the node's target on the fakes, for real, and record it."""
    try:
        results, written = _run(target, operands)
    except Exception as error:
        if any(type(value) is FakeTensor and value._has_symbolic_sizes_strides for value in operands):
            raise Break("SB016", f"a transform of torch.func, over sizes that are left open: {error}") from None
        if not any(type(value) in SYMBOLIC for value in operands):
            raise Raised(error) from None
        operands = tuple([specialise(value, "a number in a transform") if type(value) in SYMBOLIC else value
                          for value in operands])
        try:
            results, written = _run(target, operands)
        except Exception as again:
            raise Raised(again) from None
    vm.recorder.record("call_function", target, operands, {}, results, written)
    return results


def _run(target: Callable[..., Any], operands: tuple[Any, ...]) -> tuple[Any, list[FakeTensor]]:
    with torch._C.DisableTorchFunction(), Observation(target, operands, {}, opaque=False) as seen:
        results = target(*operands)
    return results, seen.written()


class Differentiated:
    """A function captured on fresh fakes of the arguments it is differentiated by."""

    def __init__(self, vm: VM, what: str, function: Callable[..., Any], args: tuple[Any, ...],
                 kwargs: dict[str, Any], argnums: object, has_aux: bool) -> None:
        for value in (args, kwargs, argnums):
            vm.heap.expose_deep(value)
        argnums = pytree.tree_map(specialise, argnums)
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            raise Break("SB016", f"torch.func.{what} where gradients are off")
        chosen = args if argnums is None else vm.native_unhooked(
            eager_transforms._slice_argnums, (args, argnums), {"as_tuple": False})
        self.wrt, self.spec = pytree.tree_flatten(chosen)
        if not self.wrt or not all(type(value) is FakeTensor and _is_real(value) for value in self.wrt):
            raise Break("SB016", f"torch.func.{what} by something else than floating-point tensors")
        with Subgraph(vm.recorder) as part:
            examples = [_differentiable(part, i, value) for i, value in enumerate(self.wrt)]
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

    def call(self, *tensors: object) -> Any:
        """The function as torch.func wants it: (outputs, aux)."""
        made = self.module(*tensors)
        return tuple(made[:self.results]), tuple(made[self.results:])


def _is_real(value: Any) -> bool:
    with torch._C.DisableTorchFunction():
        return value.is_floating_point() or value.is_complex()


def _differentiable(part: Subgraph, index: int, value: Any) -> Any:
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


@rule(eager_transforms.grad_and_value_impl)
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


@rule(eager_transforms._jvp_with_argnums)
def _jvp(vm: VM, func: Any, primals: Any, tangents: Any, argnums: Any, *, strict: Any = False, has_aux: Any) -> Any:
    argnums = pytree.tree_map(specialise, argnums)
    if type(primals) is not tuple:
        raise Break("SB016", "torch.func.jvp with primals that are no tuple")
    vm.heap.expose_deep(tangents)
    inner = Differentiated(vm, "jvp", func, primals, {}, argnums, has_aux)
    flat, spec = pytree.tree_flatten(tangents)
    chosen = eager_transforms._slice_argnums(primals, argnums) if argnums is not None else primals
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


@rule(eager_transforms._vjp_with_argnums)
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
    """The function that vjp returns, bound to its operands: derivatives for these cotangents."""
    out_spec, spec = vjp.specs
    flat, given = pytree.tree_flatten(cotangents)
    if given != out_spec:
        raise RuntimeError(
            f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
            f"cotangents: {pytree.treespec_pprint(given)}, primal output: {pytree.treespec_pprint(out_spec)}")
    return pytree.tree_unflatten(list(vjp(*operands, *flat)), spec)


@rule(pull_back)
def _pull_back(vm: VM, vjp: Any, operands: Any, cotangents: object, retain_graph: object = True,
               create_graph: object = None) -> Any:
    vm.heap.expose_deep(cotangents)
    out_spec, spec = vjp.specs
    flat, given = pytree.tree_flatten(cotangents)
    if given != out_spec or not all(type(value) is FakeTensor for value in flat) or create_graph is False:
        raise Break("SB016", "the function that torch.func.vjp returned, called in another way")
    return pytree.tree_unflatten(list(record(vm, vjp, (*operands, *flat))), spec)


@rule(vmap_impl)
def _vmap(vm: VM, func: Any, in_dims: Any, out_dims: Any, randomness: Any, chunk_size: Any, *inputs: Any,
          **kwargs: Any) -> Any:
    for value in (in_dims, out_dims, inputs, chunk_size):
        vm.heap.expose_deep(value)
    in_dims, out_dims, chunk_size = pytree.tree_map(specialise, (in_dims, out_dims, chunk_size))
    if chunk_size is not None and type(chunk_size) is not int:
        raise Break("SB016", "vmap in chunks of a size that is no constant")
    witness = None if chunk_size is None else watched(vm, "vmap in chunks")  # eager calls it for every chunk
    _, dims, flat, spec = vm.native_unhooked(_process_batched_inputs, (in_dims, inputs, func))
    mapped = [(value, dim) for value, dim in zip(flat, dims, strict=True) if dim is not None]
    with Subgraph(vm.recorder) as part:
        examples = [value if dim is None else _slice_of(part, i, value, dim)
                    for i, (value, dim) in enumerate(zip(flat, dims, strict=True))]
        result = vm.call_sync(func, pytree.tree_unflatten(examples, spec), kwargs)
        vm.heap.expose_deep(result)
        outputs, out_spec = pytree.tree_flatten(result)
        if not all(type(value) is FakeTensor for value in outputs):
            raise Break("SB016", "vmap of a function that returns something else than tensors")
        module = part.finish(outputs)
    changed = witness.changed() if witness is not None else ""
    if changed:
        raise Break("SB016", f"vmap in chunks, for each of which the function has an effect: {changed}")
    flat_out_dims = pytree._broadcast_to_and_flatten(out_dims, out_spec)
    if flat_out_dims is None:
        raise Break("SB016", "out_dims that do not fit what the function returns")
    target = mapped_call(module, [dim for _, dim in mapped] + [None] * len(part.lifted), flat_out_dims, randomness,
                         chunk_size)
    results = record(vm, target, (*(value for value, _ in mapped), *part.lifted))
    return pytree.tree_unflatten(list(results), out_spec)


def _slice_of(part: Subgraph, index: int, value: Any, dim: int) -> Any:
    with torch._C.DisableTorchFunction():
        if not value.shape[dim]:  # nothing to map over: the example is what there would be
            sizes = [1 if i == dim else size for i, size in enumerate(value.shape)]
            value = value.detach().new_zeros(sizes).requires_grad_(value.requires_grad)
        example = value.select(dim, 0)
    part.bind(f"mapped_{index}", example)
    return example


def mapped_call(module: object, in_dims: list[int | None], out_dims: list[Any], randomness: str,
                chunk_size: int | None = None) -> Any:
    """The target of the node: always a tuple of tensors."""
    run = torch.vmap(module, in_dims=tuple(in_dims), out_dims=tuple(out_dims), randomness=randomness,
                     chunk_size=chunk_size)

    def vmap(*tensors: object) -> Any:
        return run(*tensors)
    return vmap
