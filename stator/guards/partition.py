"""Which places share an address, as data.   a.add_(1) with a, b  ->  a and b share no memory

In: places: a source, the kind of its address, whether the program wrote through it.  Out: the group of each place.
`capture/stages.py:guard_shared_memory` makes the guard.
Places whose ranges of bytes overlap, directly or through others, are one group; unwritten ones stand alone.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy
import torch

from stator.host.value_kinds import is_a
from stator.source import Source

Range: TypeAlias = tuple[int, int, int]  # where an address begins and ends, and the offset of its begin in the storage

_interface = numpy.ndarray.__dict__["__array_interface__"].__get__


class Address(enum.IntEnum):
    """Which range of bytes a value stands for; the numbers are those of `csrc/partition_check.h`."""

    OBJECT = 0  # the object itself
    STORAGE = 1  # the whole storage of a tensor
    MEMORY = 2  # the bytes that a tensor, an array or another buffer uses, and where they begin


class NoAddress(LookupError):
    """The value has no address of that kind."""


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """A source, and the state that is found there."""

    source: Source
    address: Address = Address.OBJECT
    written: bool = True


@dataclass(frozen=True, slots=True)
class Partition:
    """The group of each place, named by its first place; `begins`: first bytes of its memory and its storage."""

    places: tuple[SharedPlace, ...]
    groups: tuple[int, ...]
    begins: tuple[tuple[int, int] | None, ...]

    def text(self) -> str:
        shared = [self.relation(group, place) for place, group in enumerate(self.groups) if group != place]
        heads = [place for place, group in enumerate(self.groups) if group == place]
        written = [place.source.text() for place in self.places if place.written]
        if len(heads) == 2 and not shared:
            return self.relation(0, 1)
        if len(heads) > 1 and len(written) == len(self.places):
            named = ", ".join(self.places[head].source.text() for head in heads)
            shared.append(f"{named} {'are different objects' if self._are_objects else 'share no memory'}")
        elif len(heads) > 1:
            word = "is no other object" if self._are_objects else "shares memory with no other tensor"
            shared.append(f"{', '.join(written)} {word} of the call")
        return "; ".join(shared)

    @property
    def _are_objects(self) -> bool:
        return all(place.address is Address.OBJECT for place in self.places)

    def relation(self, first: int, second: int) -> str:
        left, right = self.places[first].source.text(), self.places[second].source.text()
        together = self.groups[first] == self.groups[second]
        if self._are_objects:
            return f"{left} {'is' if together else 'is not'} {right}"
        return f"{left} and {right} share {'' if together else 'no '}memory"

    def difference(self, values: Sequence[Any]) -> tuple[str, str] | None:
        """A relation that held, and the one that holds now; None where the groups are the same."""
        now = partition(self.places, values)
        for second in range(len(values)):
            for first in range(second):
                if (self.groups[first] == self.groups[second]) != (now.groups[first] == now.groups[second]):
                    return self.relation(first, second), now.relation(first, second)
        for place, was, found in zip(self.places, self.begins, now.begins, strict=True):
            if was != found and was is not None and found is not None:
                name, number = place.source.text(), int(was[0] == found[0])
                memory = ("the memory it shares", "its storage")[number]
                return f"{name} begins at byte {was[number]} of {memory}", f"at byte {found[number]}"
        return None


def partition(places: Sequence[SharedPlace], values: Sequence[Any]) -> Partition:
    """The groups of the values at the places."""
    ranges = [byte_range(place.address, value) for place, value in zip(places, values, strict=True)]
    groups, begins = group(ranges, [place.written for place in places])
    shown = [begin if place.address is Address.MEMORY else None for place, begin in zip(places, begins, strict=True)]
    return Partition(tuple(places), groups, tuple(shown))


def group(ranges: Sequence[Range], written: Sequence[bool]) -> tuple[tuple[int, ...], list[tuple[int, int] | None]]:
    """The first member of the group of each range; where a range begins in its group and in its storage."""
    groups = list(range(len(ranges)))
    begins: list[tuple[int, int] | None] = [None] * len(ranges)
    order = sorted([number for number in groups if ranges[number][0] < ranges[number][1]], key=ranges.__getitem__)
    while order:
        reach = ranges[order[0]][1]
        count = 1
        while count < len(order) and ranges[order[count]][0] < reach:
            reach = max(reach, ranges[order[count]][1])
            count += 1
        together, order = order[:count], order[count:]
        if count > 1 and any(written[number] for number in together):
            for number in together:
                groups[number] = min(together)
                begins[number] = (ranges[number][0] - ranges[together[0]][0], ranges[number][2])
    return tuple(groups), begins


def byte_range(address: Address, value: Any) -> Range:
    """The bytes that a value stands for."""
    if address is Address.OBJECT:
        return id(value), id(value) + 1, 0
    if not is_a(value, torch.Tensor):
        return _buffer_range(address, value)
    with torch._C.DisableTorchFunction():
        try:
            storage = value.untyped_storage()
            shape, stride, offset = value.shape, value.stride(), value.storage_offset() * value.itemsize
        except (RuntimeError, NotImplementedError) as error:
            raise NoAddress(str(error)) from error
        try:
            start = storage.data_ptr()
        except RuntimeError:  # a wrapper subclass has a storage without memory
            start = 0
        if start == 0:
            return storage._cdata, storage._cdata + 1, 0
        if address is Address.STORAGE:
            return start, start + max(storage.nbytes(), 1), 0
        length = 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        return start + offset, start + offset + length * value.itemsize, offset


def _buffer_range(address: Address, value: Any) -> Range:
    try:
        array = value if is_a(value, numpy.ndarray) else numpy.asarray(memoryview(value))
    except TypeError as error:
        raise NoAddress(str(error)) from error
    if address is not Address.MEMORY:
        raise NoAddress("not a tensor")
    facts = _interface(array)
    begin = end = facts["data"][0]
    if array.size:
        end += array.itemsize
        for size, step in zip(array.shape, array.strides, strict=True):
            begin, end = begin + min(0, (size - 1) * step), end + max(0, (size - 1) * step)
    return begin, end, 0
