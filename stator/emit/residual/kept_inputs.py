"""Undo what a graph wrote before it failed.   cache.copy_(k); t[i] raises  ->  cache as it was, then the program itself

In: the inputs that a graph writes to, before it runs.  Out: copies of them, and the way back.  A graph that cannot
raise needs none.  Large inputs are not copied: what is kept is at most a sixteenth of all that the graph is given,
or KEPT_BYTES; the error of a graph that writes more than that is raised as it is.
"""

from __future__ import annotations

from typing import Any

import torch

KEPT_BYTES = 4 << 20
SHARE = 16
_own = torch._C.TensorBase  # where the program may have replaced Tensor's methods
_detach, _clone, _is_inference = _own.detach, _own.clone, _own.is_inference
_grad_fn, _layout_of, _set_data = _own.grad_fn.__get__, _own.layout.__get__, _own.data.__set__


def small_enough(written: list[torch.Tensor], given: list[torch.Tensor]) -> bool:
    return sum(map(nbytes, written)) <= max(KEPT_BYTES, sum(map(nbytes, given)) // SHARE)


def nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def keep(tensors: tuple[torch.Tensor, ...]) -> list[Any]:
    """The tensors as they are now. One whose own elements overlap cannot be written to."""
    return [(tensor, _clone(_detach(tensor)), None if _is_inference(tensor) else tensor._version, _grad_fn(tensor),
             (_layout(tensor), _detach(tensor)))
            for tensor in tensors if not _layout(tensor) or torch._debug_has_internal_overlap(tensor) != 1]


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Its memory, and how it lies there."""
    return (_own.untyped_storage(tensor)._cdata, _own.size(tensor), _own.stride(tensor), _own.storage_offset(tensor)) \
        if _layout_of(tensor) is torch.strided else ()


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that hold its elements: itself, or indices and values of a sparse one."""
    return [getattr(_own, name)(tensor) for name in _PARTS.get(_layout_of(tensor), ())] or [tensor]


_COMPRESSED = {"crow_indices col_indices values": (torch.sparse_csr, torch.sparse_bsr),
               "ccol_indices row_indices values": (torch.sparse_csc, torch.sparse_bsc)}
_PARTS = {layout: names.split() for names, layouts in _COMPRESSED.items() for layout in layouts}
_PARTS[torch.sparse_coo] = ["_indices", "_values"]


def put_back(kept: list[Any]) -> bool:
    """Make them so again; False, and nothing done, where autograd has seen a write."""
    if any(_grad_fn(tensor) is not grad_fn for tensor, _, _, grad_fn, _ in kept):
        return False
    for tensor, _, _, _, (layout, before) in kept:
        if not layout:
            _set_data(tensor, before)  # the parts that it had
        elif layout != _layout(tensor):
            with torch.inference_mode(_is_inference(tensor)), torch.no_grad():
                _own.set_(tensor, before)
    with torch.inference_mode():
        for tensor, contents, version, _, _ in kept:
            for part, then in zip(_parts(_detach(tensor)), _parts(contents), strict=True):
                _own.copy_(part, then)
            if version is not None:
                torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
    return True
