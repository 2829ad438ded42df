"""Symbols for what comes from outside.   a tensor and its open dimensions  ->  a fake tensor with symbolic sizes

An int becomes an integer symbol; a float a real one, which reaches the graph inside a tensor, because compilers take
tensors and integers only.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
    SubclassSymbolicContext,
)
from torch.utils._mode_utils import no_dispatch
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from stator.errors import DeclarationError
from stator.shapes.environment import NamedSource
from stator.shapes.named_dimensions import Dim
from stator.shapes.tensor_marks import RANGE_MARK
from stator.source import Source

_HOW = {"open": DimDynamic.DUCK, "declared": DimDynamic.DYNAMIC, "unbacked": DimDynamic.UNBACKED}


def symbolic_fake(mode: FakeTensorMode, tensor: torch.Tensor, source: Source,
                  dims: dict[int, str | Dim], strides: frozenset[int] = frozenset()) -> FakeTensor:
    """A fake tensor whose given dimensions, and given strides, are symbols."""
    sizes = [_how(dims.get(dim)) for dim in range(tensor.dim())]
    seen: set[int] = set()
    for dim, how in dims.items():  # height and width are two facts, also where they are equal today
        if how == "open":
            if tensor.shape[dim] in seen:
                sizes[dim] = DimDynamic.DYNAMIC
            seen.add(tensor.shape[dim])
    plain = tensor
    # Of the sizes of a base nothing is known or guarded, and those of a gradient are the tensor's own: fake it alone.
    if tensor._is_view() or tensor.is_leaf and tensor.grad is not None:
        with no_dispatch():
            plain = tensor.data
            if isinstance(tensor, torch.nn.Parameter):
                plain = torch.nn.Parameter(plain, tensor.requires_grad)
            plain.requires_grad_(tensor.requires_grad)
    steps = [DimDynamic.DYNAMIC if dim in strides else DimDynamic.INFER_STRIDE for dim in range(tensor.dim())]
    _require_in_range(tensor, source)
    context = StatelessSymbolicContext(dynamic_sizes=sizes, dynamic_strides=steps,
                                       constraint_sizes=_declared_ranges(tensor, dims))
    fake = mode.from_tensor(plain, symbolic_context=context, source=NamedSource(source))
    if not fake.is_inference() and fake._version:  # torch has put it on memory that it has a fake of: no write
        torch._C._autograd._unsafe_set_version_counter((fake,), (0,))
    return fake


def symbolic_wrapper(mode: FakeTensorMode, tensor: torch.Tensor, source: Source, parts: dict[str, Any],
                     dims: dict[int, str | Dim], inner_dims: dict[str, Any]) -> Any:
    """A wrapper of fakes of `parts`; their sizes that equal a symbolic size of the wrapper are the same symbol."""
    _require_in_range(tensor, source)
    open_sizes = {tensor.shape[dim] for dim in dims}
    outer = [DimDynamic.DUCK if dim in dims else DimDynamic.STATIC for dim in range(tensor.dim())]
    inner = {name: StatelessSymbolicContext(dynamic_sizes=[
        DimDynamic.DUCK if size in open_sizes or dim in inner_dims[name] else DimDynamic.STATIC
        for dim, size in enumerate(part.shape)]) for name, part in parts.items()}
    place = NamedSource(source)
    context = SubclassSymbolicContext(dynamic_sizes=outer, constraint_sizes=_declared_ranges(tensor, dims),
                                      tensor_source=place, inner_contexts=inner)
    return mode.from_tensor(tensor, source=place, symbolic_context=context)


def _how(choice: str | Dim | None) -> DimDynamic:
    if choice is None:
        return DimDynamic.STATIC
    return DimDynamic.DYNAMIC if isinstance(choice, Dim) else _HOW[choice]


def _declared_ranges(tensor: torch.Tensor, dims: dict[int, str | Dim]) -> list[Any]:
    ranges: list[Any] = [None] * tensor.dim()
    for declared in tensor.__dict__.get(RANGE_MARK, ()):
        ranges[declared.dim] = _range(declared)
    for dim, choice in dims.items():
        if isinstance(choice, Dim):
            ranges[dim] = _range(choice)
    return ranges


def _require_in_range(tensor: torch.Tensor, source: Source) -> None:
    for declared in tensor.__dict__.get(RANGE_MARK, ()):
        size = tensor.shape[declared.dim]
        if size > 1 and (declared.min is not None and size < declared.min
                         or declared.max is not None and size > declared.max):
            least = "" if declared.min is None else f" of at least {declared.min}"
            most = "" if declared.max is None else f"{' and' if least else ' of'} at most {declared.max}"
            raise DeclarationError(f"{source.text()}.size({declared.dim}) is declared dynamic, a size{least}{most}, "
                                   f"but it is {size} in this call; mark another range, or leave it out")


def _range(declared: Any) -> Any:
    if declared.min is None and declared.max is None:
        return None
    low = 2 if declared.min is None else max(declared.min, 2)  # sizes 0 and 1 are constants
    high = int_oo if declared.max is None else declared.max
    return StrictMinMaxConstraint(warn_only=False, vr=ValueRanges(low, high)) if low <= high else None


def symbolic_number(env: Any, value: int | float, source: Source, undecided: bool) -> tuple[sympy.Symbol, Any]:
    """A number from outside; of an undecided one, an int, nothing may be decided while tracing."""
    name = NamedSource(source)
    if undecided:
        number = env.create_unbacked_symint(name)
        return number.node.expr, number
    if type(value) is int:
        symbol = env.create_symbol(value, name, DimDynamic.DYNAMIC, positive=None, do_not_specialize_zero_one=True)
        return symbol, env.create_symintnode(symbol, hint=value, source=name)
    symbol = env.create_unspecified_symbol(value, name, DimDynamic.DYNAMIC)
    return symbol, env.create_symfloatnode(symbol, hint=value, source=name)


def drawn_number(env: Any, cls: type, source: Source, bounds: tuple[Any, Any] | None) -> tuple[Any, Any]:
    """A number of which nothing is known but its range, both ends included."""
    number = env.create_unbacked_symint(NamedSource(source)) if cls is int else env.create_unbacked_symfloat()
    symbol = number.node.expr
    if bounds is not None:
        low, high = bounds
        env.var_to_range[symbol] = ValueRanges(sympy.sympify(low), sympy.sympify(high))
    return symbol, number


def float_tensor(value: float) -> torch.Tensor:
    """How a float is handed to the graph."""
    return torch.tensor(value, dtype=torch.float64)
