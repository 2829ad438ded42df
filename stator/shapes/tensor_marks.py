"""Declare dimensions of tensors.   mark_dynamic(x, 0, min=2, max=64)

In: a tensor and dimensions.  Out: marks on that tensor, under the names that torch uses for its own, so that the
marks of either library count for both.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import torch

from stator.errors import OptionTypeError, OptionValueError

# The marks that torch leaves on tensors; ours are the same attributes, so that either library's calls count.
DYNAMIC_MARK = "_dynamo_dynamic_indices"
WEAK_MARK = "_dynamo_weak_dynamic_indices"
RAGGED_MARK = "_dynamo_propagated_dynamic_indices"  # on the parts of jagged tensors
STATIC_MARK = "_dynamo_static_indices"
STATIC_CLASS_MARK = "_dynamo_marked_static"  # of a class of modules: the numbers its instances hold are constants
UNBACKED_MARK = "_dynamo_unbacked_indices"
RANGE_MARK = "_dynamo_dynamic_range"
ADDRESS_MARK = "_dynamo_static_input_type"  # "guarded" or "unguarded": the tensor stays where it is in memory
Dims: TypeAlias = "int | list[int] | tuple[int, ...]"


class DimRange(NamedTuple):
    """The sizes that a dimension may have."""

    dim: int
    min: int | None
    max: int | None


def mark_dynamic(tensor: torch.Tensor, index: Dims, *, min: int | None = None, max: int | None = None) -> None:
    """These dimensions change: they are symbols from the first compile on; code that pins one down is an error."""
    for dim in _add(tensor, index, DYNAMIC_MARK):
        if min is not None and max is not None and min > max:
            raise OptionValueError(f"mark_dynamic(min={min}, max={max}) is not accepted; min must not exceed max")
        _marks(tensor, RANGE_MARK).add(DimRange(dim, min, max))


def maybe_mark_dynamic(tensor: torch.Tensor, index: Dims) -> None:
    """These dimensions change; code that pins one down makes a constant of it."""
    _add(tensor, index, WEAK_MARK)


def mark_static(tensor: torch.Tensor, index: Dims | None = None) -> type | None:
    """These dimensions (all of them, by default) are constants, whatever `dynamic=` is.

    Of a class of modules, which is returned: the numbers that its instances hold are constants.
    """
    if isinstance(tensor, type) and issubclass(tensor, torch.nn.Module):
        setattr(tensor, STATIC_CLASS_MARK, True)
        return tensor
    dims = list(range(tensor.dim())) if index is None and isinstance(tensor, torch.Tensor) else index
    _add(tensor, dims, STATIC_MARK)
    return None


def mark_unbacked(tensor: torch.Tensor, index: Dims) -> None:
    """The graph must work for every size of these dimensions: nothing may be decided from the present one."""
    _add(tensor, index, UNBACKED_MARK)


def mark_static_address(tensor: torch.Tensor, guard: bool = False) -> None:
    """The tensor stays where it is in memory: CUDA graphs read and write it there, and copy nothing.

    With `guard`, another address makes another compile; without, CUDA graphs are recorded anew.
    """
    if not isinstance(tensor, torch.Tensor):
        raise OptionTypeError(f"a {type(tensor).__name__} has no address to mark; use a tensor")
    setattr(tensor, ADDRESS_MARK, "guarded" if guard else "unguarded")


def _add(tensor: torch.Tensor, index: Any, mark: str) -> list[int]:
    if not isinstance(tensor, torch.Tensor):
        raise OptionTypeError(f"a {type(tensor).__name__} has no dimensions to mark; use a tensor")
    dims = [index] if isinstance(index, int) else list(index)
    for dim in dims:
        if not isinstance(dim, int) or not -tensor.dim() <= dim < tensor.dim():
            raise OptionValueError(f"dimension {dim!r} is not accepted; the tensor has {tensor.dim()}")
    dims = [dim % tensor.dim() for dim in dims]
    _marks(tensor, mark).update(dims)
    return dims


def _marks(tensor: torch.Tensor, mark: str) -> set[Any]:
    """An ordinary attribute: captured code may mark tensors, too."""
    found: set[Any] | None = getattr(tensor, mark, None)
    if found is None:
        found = set()
        setattr(tensor, mark, found)
    return found
