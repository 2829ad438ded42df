"""Writes to memory that an operation sees under several names.   torch._foreach_add_([x, x], 1), x[1:] += x[:-1]

In: the tensors that an operation is given and those it writes to; the inputs of a graph.  Out: why a compiler that
functionalises would compute something else.  AOTAutograd replaces a write by a new tensor: an operation that would read
what it has just written reads the old values, one that writes to a place twice writes once, and the errors that eager
raises for such writes ("refer to a single memory location") are lost.  Inputs that overlap become one tensor with views
that autograd does not see as the views they are.

Layouts decide, as far as sizes are constants; where they are symbols, tensors on one storage count as overlapping.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch._ops import OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor

from stator.graph.analysis.mutation import operator_name, storage_of, tensors_in
from stator.graph.metadata.propagation import Propagation

_BASIC_INDEX = (int, slice, type(None), type(...))


class Overlaps:
    """The first write of a trace that must not be functionalised."""

    def __init__(self, propagation: Propagation) -> None:
        self.propagation = propagation
        self.found = ""
        self.storages: set[int] = set()  # that the graph writes to

    def check(self, target: object, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[Any]) -> None:
        """Look at one operation, after it has run on fakes."""
        self.storages.update(map(self.propagation.root, written))
        with torch._C.DisableTorchFunction():
            self.found = self.found or self._unfaithful(target, args, kwargs, written)

    def _unfaithful(self, target: object, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[Any]) -> str:
        if any(map(overlaps_itself, written)):
            return "a write to a tensor that overlaps itself"
        given = [*tensors_in(args), *tensors_in(kwargs)]
        if len(given) == 1:
            return ""
        if target is operator.setitem and _is_basic(args[1]):
            if not self._share(args[0], args[2]):
                return ""
            part = None if _numbers(args[0]) is None else args[0][args[1]]
            if part is None or may_overlap(part, args[2]) and not is_same(part, args[2]):
                return "an assignment to a part of a tensor from another part that overlaps it"
            return ""
        waiting = list(map(id, written))
        read = []
        for tensor in given:
            if id(tensor) in waiting:
                waiting.remove(id(tensor))
            else:
                read.append(tensor)
        for number, tensor in enumerate(written):
            if any(self._share(tensor, other) and may_overlap(tensor, other) for other in written[:number]):
                return "an operation that writes twice to one memory"
        in_place = len(written) == 1 and (target == "copy_" or is_pointwise(target))
        for tensor in written:
            for other in read:
                if self._share(tensor, other) and not (in_place and is_same(tensor, other)) \
                        and may_overlap(tensor, other):
                    return "an operation that reads the memory it writes to"
        return ""

    def _share(self, a: object, b: object) -> bool:
        if type(a) is not FakeTensor or type(b) is not FakeTensor:
            return False
        storage = storage_of(a)
        return storage != 0 and (storage == storage_of(b) or self.propagation.is_known_to_share(a, b))


def _is_basic(index: object) -> bool:
    """Whether `x[index]` is a view."""
    items = index if type(index) is tuple else (index,)
    return all(type(item) in _BASIC_INDEX for item in items)


def is_pointwise(target: object) -> bool:
    """Whether an operator computes each element from those at the same place."""
    packet = getattr(torch.ops.aten, operator_name(target) or "-", None)
    return isinstance(packet, OpOverloadPacket) and any(
        torch.Tag.pointwise in getattr(packet, name).tags for name in packet.overloads())


# ---------------------------------------------------------------------- layouts


def is_same(a: Any, b: Any) -> bool:
    """Whether two tensors on one storage are the same elements in the same order."""
    return a is b or _layout(a) == _layout(b) and a.dtype == b.dtype


def _layout(tensor: torch.Tensor) -> list[Any]:
    return [each if type(each) is int else each.node.expr
            for each in (tensor.storage_offset(), *tensor.shape, *tensor.stride())]


def _numbers(tensor: torch.Tensor) -> tuple[int, list[tuple[int, int]]] | None:
    """Offset, and (stride, size) of each dimension that moves; None where one of them is a symbol."""
    offset, sizes, strides = tensor.storage_offset(), tensor.shape, tensor.stride()
    if any(type(each) is not int for each in (offset, *sizes, *strides)):
        return None
    return offset, [(stride, size) for stride, size in zip(strides, sizes, strict=True) if size != 1]


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two indices may lead to one element."""
    if tensor.layout is not torch.strided:
        return False
    found = _numbers(tensor)
    if found is None:  # whichever sizes: views that repeat elements have a stride of 0, or of less than what lies below
        return any(type(stride) is int and not stride and type(size) is not int
                   for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    reach = 0
    for stride, size in sorted(found[1]):
        if not size:
            return False
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def may_overlap(a: Any, b: Any) -> bool:
    """Whether two tensors on one storage may have an element in common; True where that cannot be decided."""
    first, second = _numbers(a), _numbers(b)
    if first is None or second is None or a.itemsize != b.itemsize:
        return True
    if not a.numel() or not b.numel():
        return False
    begin = min(first[0], second[0])
    strides = sorted({stride for _, dims in (first, second) for stride, _ in dims if stride}, reverse=True)
    digits = [_digits(offset - begin, dims, strides) for offset, dims in (first, second)]
    if digits[0] is None or digits[1] is None:
        return _reach(*first) > second[0] and _reach(*second) > first[0]
    return all(low <= other_high and other_low <= high
               for (low, high), (other_low, other_high) in zip(digits[0], digits[1], strict=True))


def _reach(offset: int, dims: list[tuple[int, int]]) -> int:
    return offset + sum(stride * (size - 1) for stride, size in dims) + 1


def _digits(offset: int, dims: list[tuple[int, int]], strides: list[int]) -> list[tuple[int, int]] | None:
    """The places of a tensor as ranges of digits in the number system of these strides, the largest first.

    None where a digit would carry over into the next: then a place has several spellings.
    """
    sizes = {stride: size for stride, size in dims if stride}
    if len(sizes) != sum(bool(stride) for stride, _ in dims):
        return None
    found = []
    for stride in strides:
        digit, offset = divmod(offset, stride)
        found.append((digit, digit + sizes.get(stride, 1) - 1))
    found.append((offset, offset))
    reach = 0
    for (_, high), stride, above in zip(reversed(found), [1, *reversed(strides)], [*reversed(strides), 0], strict=True):
        reach += high * stride
        if above and reach >= above:
            return None
    return found


# ---------------------------------------------------------------------- inputs


def overlapping_inputs(inputs: Iterable[Any], written: set[int]) -> bool:
    """Whether two inputs overlap on one of the storages that a graph writes to."""
    by_storage: dict[int, list[Any]] = {}
    for each in inputs:
        if type(each.fake) is FakeTensor:
            by_storage.setdefault(storage_of(each.fake), []).append(each.fake)
    with torch._C.DisableTorchFunction():
        return any(may_overlap(fake, other) for storage in written.intersection(by_storage)
                   for number, fake in enumerate(by_storage[storage]) for other in by_storage[storage][:number])
