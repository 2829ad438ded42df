"""Layouts of sparse gradients.   F.embedding(i, table, sparse=True)  ->  a fake gradient without elements

The composite kernels of torch list the places of the real indices, which fakes do not have, and count them in symbols
of their own.  Fakes of sparse tensors have no elements; these rules give such fakes while the engine runs on fakes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch._C import DispatchKey
from torch._dispatch.python import enable_python_dispatcher

_aten = torch.ops.aten


def without_elements(shape: Sequence[object], sparse_dim: int, like: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = _aten._sparse_coo_tensor_with_dims(
        sparse_dim, len(shape) - sparse_dim, shape, dtype=like.dtype, layout=torch.sparse_coo, device=like.device)
    return made


def _of_table(grad: torch.Tensor, indices: torch.Tensor, count: object, *rest: object) -> torch.Tensor:
    return without_elements((count, grad.shape[-1]), 1, grad)


def _of_bag(grad: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, bags: torch.Tensor, sizes: torch.Tensor,
            count: object, *rest: object) -> torch.Tensor:
    return without_elements((count, grad.shape[-1]), 1, grad)


_RULES: dict[Any, Callable[..., torch.Tensor]] = {
    _aten.embedding_sparse_backward.default: _of_table, _aten._embedding_bag_sparse_backward.default: _of_bag}


@contextlib.contextmanager
def sparse_gradients_of_fakes(functions: Iterable[object]) -> Iterator[None]:
    """Around a pass of the engine on fakes through these functions of autograd."""
    if not any(getattr(each, "_saved_sparse", False) for each in functions):
        yield
        return
    key = DispatchKey.CompositeImplicitAutograd
    for operator, rule in _RULES.items():
        operator.py_kernels[key] = rule
        operator._dispatch_cache.clear()
    try:
        with enable_python_dispatcher():
            yield
    finally:
        for operator in _RULES:
            operator.py_kernels.pop(key, None)
            operator._dispatch_cache.clear()
