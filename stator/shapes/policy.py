"""Which sizes and numbers are left open.

    dynamic=None   constants first; what is seen to change becomes a symbol in the next compile of the same place
    dynamic=True   all sizes, and numbers among the arguments, from the first compile on
    dynamic=False  constants always

In: what failed of the entries there are (`Memory.learn`), and the user's marks on tensors.  Out: for each tensor the
dimensions that become symbols, for each number whether it becomes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from stator.guards.guard import Guard, Kind
from stator.guards.reference import Unreadable, evaluate
from stator.source import Index, Key, KeyAt, Local, Pinned, Source, ValueAt

# The marks that torch leaves on tensors; ours are the same attributes, so that either library's calls count.
DYNAMIC_MARK = "_dynamo_dynamic_indices"
WEAK_MARK = "_dynamo_weak_dynamic_indices"
STATIC_MARK = "_dynamo_static_indices"
UNBACKED_MARK = "_dynamo_unbacked_indices"
RANGE_MARK = "_dynamo_dynamic_range"
_CONTAINERS = (Index, Key, KeyAt, ValueAt)


@dataclass
class Memory:
    """What has been seen to change at one place of the program."""

    sizes: dict[Source, set[int]] = field(default_factory=dict)
    numbers: set[Source] = field(default_factory=set)
    tuples: set[Source] = field(default_factory=set)  # constant tuples with numbers that change

    def learn(self, guards: Iterable[Guard], bound: Sequence[Any]) -> None:
        """Compare an entry's facts with the call that it does not fit."""
        for guard in guards:
            if guard.kind is Kind.TENSOR or guard.kind is Kind.EQUALS and type(guard.value) in (int, float, tuple):
                try:
                    value = evaluate(guard.source, bound)
                except Unreadable:
                    continue
                self._compare(guard, value)

    def forget(self) -> None:
        for known in (self.sizes, self.numbers, self.tuples):
            known.clear()

    def _compare(self, guard: Guard, value: Any) -> None:
        expected = guard.value
        if guard.kind is Kind.EQUALS:
            self._compare_constants(guard.source, expected, value)
            return
        if type(value) is not expected.type or value.dim() != len(expected.sizes):
            return
        changed = {dim for dim, size in enumerate(expected.sizes) if size is not None and size != value.shape[dim]}
        if changed:
            self.sizes.setdefault(guard.source, set()).update(changed)


    def _compare_constants(self, source: Source, expected: Any, value: Any) -> None:
        if type(value) is not type(expected) or value == expected:
            return
        if type(value) is tuple:
            if len(value) == len(expected):
                self.tuples.add(source)
                for i, (old, new) in enumerate(zip(expected, value, strict=True)):
                    self._compare_constants(Index(source, i), old, new)
        elif type(value) in (int, float) and value == value and expected == expected:
            self.numbers.add(source)


@dataclass
class Policy:
    """The choices of one compiled place."""

    dynamic: bool | None
    memory: Memory = field(default_factory=Memory)

    def open_dims(self, tensor: torch.Tensor, source: Source) -> dict[int, str]:
        """The dimensions that become symbols: "declared" by a mark, "unbacked", or "open"."""
        with torch._C.DisableTorchFunction():  # the tracer's own mode is on
            rank = tensor.dim()
            if rank == 0 or tensor.layout is not torch.strided:
                return {}
        marks = tensor.__dict__
        found: dict[int, str] = {}
        if self.dynamic is not False:
            if self.dynamic and type(tensor) is torch.Tensor:
                found.update(dict.fromkeys(range(rank), "open"))
            found.update(dict.fromkeys(self.memory.sizes.get(source, ()), "open"))
            found.update(dict.fromkeys(marks.get(WEAK_MARK, ()), "open"))
            for dim in marks.get(STATIC_MARK, ()):
                found.pop(dim, None)
        found.update(dict.fromkeys(marks.get(DYNAMIC_MARK, ()), "declared"))
        found.update(dict.fromkeys(marks.get(UNBACKED_MARK, ()), "unbacked"))
        return {dim: how for dim, how in found.items() if 0 <= dim < rank}

    def is_open(self, value: Any, source: Source) -> bool:
        """Whether an int or float becomes a symbol."""
        if self.dynamic is False or value != value or type(source) is Pinned:
            return False
        if type(value) is int and not -(1 << 62) < value < 1 << 62:
            return False
        return source in self.memory.numbers or self.dynamic is True and type(value) is int and _is_argument(source)


    def opens_tuple(self, value: tuple[Any, ...], source: Source) -> bool:
        """Whether a tuple of constants is read item by item, because a number in it is left open."""
        if self.dynamic is False:
            return False
        return source in self.memory.tuples or self.dynamic is True and _is_argument(source) \
            and any(type(item) is int for item in value)


def _is_argument(source: Source) -> bool:
    """An argument, or an item of a container among the arguments; what hangs on objects changes less often."""
    step: Source | None = source
    while isinstance(step, _CONTAINERS):
        step = step.base
    return type(step) is Local
