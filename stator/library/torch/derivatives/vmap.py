"""torch.vmap.   vmap(f)(x, y)  ->  one node that maps a graph of f, captured on a single example

`f` is interpreted once, on fakes of one slice of each mapped input, into a graph of its own; the node maps that graph
with torch.vmap. Tensors of the surrounding program that `f` uses are handed in, unmapped.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch.vmap import _process_batched_inputs, vmap_impl
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.breaks import Break
from stator.graph.record.subgraph import Subgraph
from stator.interp.branches.captured_branches import describe
from stator.interp.mutation_check import Unwatched, Witness
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.torch.derivatives.transformed_calls import record
from stator.shapes.symbolic_values import specialise


@rule(vmap_impl)
def _vmap(vm: VM, func: Any, in_dims: Any, out_dims: Any, randomness: Any, chunk_size: Any, *inputs: Any,
          **kwargs: Any) -> Any:
    for value in (in_dims, out_dims, inputs, chunk_size):
        vm.heap.expose_deep(value)
    in_dims, out_dims, chunk_size = pytree.tree_map(specialise, (in_dims, out_dims, chunk_size))
    if chunk_size is not None and type(chunk_size) is not int:
        raise Break("SB016", "vmap in chunks of a size that is no constant")
    witness = None if chunk_size is None else _witness(vm)
    _, dims, flat, spec = vm.native_unhooked(_process_batched_inputs, (in_dims, inputs, func))
    mapped = [(value, dim) for value, dim in zip(flat, dims, strict=True) if dim is not None]
    with Subgraph(vm.recorder) as part:
        examples = [value if dim is None else _example(part, i, value, dim)
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
    operands = (*(value for value, _ in mapped), *part.lifted)
    results = record(vm, target, operands)
    return pytree.tree_unflatten(list(results), out_spec)


def _witness(vm: VM) -> Witness:
    """Eager calls the function once for every chunk."""
    try:
        return Witness(vm)
    except Unwatched as why:
        raise Break("SB016", f"vmap in chunks, while {describe(why)}") from None


def _example(part: Subgraph, index: int, value: Any, dim: int) -> Any:
    """A fake of one slice, bound to an input of the inner graph."""
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
