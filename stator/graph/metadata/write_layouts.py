"""Writes and reshapes by rule.   (Tensor.add_, float32[2, 3], 1)  ->  a write to argument 0, without FakeTensor

In: calls that `layout_rules` has no rule for, views of parameters.  Out: (WRITTEN, place) where a call writes to one
argument and does no more, the layout of a view with the size of another tensor, or None where FakeTensor decides.
tests/unit/graph/test_write_layouts.py compares each with FakeTensor and real tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from stator.graph.metadata.layout_rules import (
    ARGUMENT,
    RULES,
    WRITTEN,
    Layout,
    Read,
    Rule,
    Unsure,
    attempt,
    certain,
    filled,
    made,
    of_any,
    require,
    row_major,
    rule_of,
)

_ARITHMETIC = """add sub mul div clamp clamp_min clamp_max pow neg abs relu sigmoid tanh exp log sqrt rsqrt floor_divide
    remainder __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ iadd isub imul itruediv ifloordiv"""
_ACTIVATIONS = "hardswish hardsigmoid hardtanh relu6 silu mish elu leaky_relu"
_TRUTHS = "bitwise_and bitwise_or bitwise_not __iand__ __ior__ iand ior"
_EVERY = "copy masked_fill zero fill logical_and logical_or logical_not"


def _named(names: str) -> dict[int, object]:
    found = [getattr(torch.Tensor, f"{name}_", None) or getattr(torch._C._nn, f"{name}_", None)
             or getattr(torch.Tensor, name, None) or getattr(operator, name) for name in names.split()]
    return {id(each): each for each in found}


_OF_NUMBERS, _OF_TRUTHS, _OF_FRACTIONS = _named(_ARITHMETIC), _named(_TRUTHS), _named(_ACTIVATIONS)
_WRITES = _OF_NUMBERS | _OF_TRUTHS | _OF_FRACTIONS | _named(_EVERY)
_DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32,
                     torch.int64, torch.bool})
_NUMBERS = frozenset({int, float, bool, type(None)})


def foresee_write(func: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any],
                  read: Read) -> tuple[object, int] | None:
    """(WRITTEN, 0) of a pointwise operation in place, as torch's kernel for tensors without memory does it; or None."""
    if id(func) not in _WRITES or not args:
        return None
    try:
        require(all([type(value) in _NUMBERS or type(value) is str for value in kwargs.values()]))
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            layouts: list[Layout] = []
            given = [_without_memory(value, read, layouts) for value in args]
            written, *others = given
            require(all([each[3] == layouts[0][3] for each in layouts]))
            certain(args[0], read, _DTYPES)
            dtypes = {each[0] for each in layouts}
            require(id(func) not in _OF_NUMBERS or _fit(dtypes, {*map(type, args)}, layouts[0][0]))
            require(id(func) not in _OF_TRUTHS or dtypes == {torch.bool})
            require(id(func) not in _OF_FRACTIONS or layouts[0][0].is_floating_point)
            require(attempt(func, *given, **kwargs) is written)
            assert isinstance(written, torch.Tensor)
            require(written._version == 1 and (tuple(written.shape), written.stride()) == layouts[0][1:3])
            require(not any([value._version for value in others if isinstance(value, torch.Tensor)]))
    except Unsure:
        return None
    return WRITTEN, 0


def _fit(dtypes: set[torch.dtype], kinds: set[type], written: torch.dtype) -> bool:
    """Whether arithmetic has no truth values, and no fraction for an integer: kernels without memory take some."""
    whole = float not in kinds and not any([each.is_floating_point for each in dtypes])
    return torch.bool not in dtypes and bool not in kinds and (written.is_floating_point or whole)


def _without_memory(value: object, read: Read, layouts: list[Layout]) -> object:
    if type(value) in _NUMBERS:
        return value
    layout = filled(value, read, _DTYPES)
    layouts.append(layout)
    return torch.empty_strided(layout[1], layout[2], dtype=layout[0], device="meta")


def sized_as(view: Callable[..., Any]) -> Rule:
    """Of a view whose size is that of a second tensor."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
        require(len(args) == 2 and not kwargs)
        x = of_any(args[0], read)
        require(1 not in x[1] or x[2] == row_major(x[1]))  # strides of single elements are in doubt
        size = read(args[1])[1] if type(args[1]) is type(args[0]) else ()
        for each in RULES[id(view)][1:]:
            return each((args[0], size), {}, read)
        raise Unsure
    return rule


for _name in ("reshape", "view", "expand"):
    rule_of(getattr(torch.Tensor, f"{_name}_as"))(sized_as(getattr(torch.Tensor, _name)))


@rule_of(torch.Tensor.contiguous)
def contiguous(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
    """The tensor itself, or a copy of it row by row."""
    require(len(args) == 1 and not kwargs)
    x = filled(args[0], read, _DTYPES)
    differs = [size for size, one, other in zip(x[1], x[2], row_major(x[1]), strict=True) if one != other]
    return made(x[0], x[1], x[3]) if any([size != 1 for size in differs]) else (ARGUMENT, 0)
