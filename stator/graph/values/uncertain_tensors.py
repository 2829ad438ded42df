"""Tensors of which it is not known which they are.   if c: y = x * 2   ->   y: x itself, or a new tensor

In: the tensors that come out of a captured branch, and the tensors of before that they may be.  Out: a break at
whatever would tell the difference (an in-place operation, a question about storage or autograd's record); and, for
the tensors that leave the segment, how the residual finds out which one it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.analysis.mutation import storage_of

# Answers that differ between a tensor and a copy of it.
_TELLING = frozenset({"storage_offset", "data_ptr", "untyped_storage", "storage", "is_set_to", "_is_view", "_base",
                      "is_leaf", "grad", "grad_fn", "_version", "retain_grad", "register_hook", "output_nr",
                      "retains_grad", "_backward_hooks", "requires_grad_", "detach_"})


@dataclass(frozen=True, eq=False)
class Choice:
    """A merged tensor: which tensor of before it is where the branch was taken, and where it was not."""

    condition: Any
    when_true: Any  # a fake of before the branch, or None: a new tensor
    when_false: Any


@dataclass
class Uncertain:
    """Every such tensor of one trace."""

    storages: dict[int, set[int]] = field(default_factory=dict)  # of a merged tensor -> those it may be part of
    choices: dict[int, Choice] = field(default_factory=dict)  # by id of the merged fake
    kept: list[Any] = field(default_factory=list)

    def note(self, merged: object, candidates: Iterable[Any], choice: Choice | None) -> None:
        """`merged` may share memory with these tensors of before."""
        self.kept.append((merged, list(candidates)))
        direct = {storage_of(each) for each in candidates}  # some of them may be uncertain themselves
        self.storages[storage_of(merged)] = direct.union(*(self.storages.get(each, ()) for each in direct))
        if choice is not None:
            self.choices[id(merged)] = choice

    def concerns(self, tensor: torch.Tensor) -> bool:
        storage = storage_of(tensor)
        return storage in self.storages or any(storage in others for others in self.storages.values())

    def check(self, target: object, in_place: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = getattr(target, "__name__", target)
        if not in_place and name not in _TELLING:
            return
        for value in (*args, *kwargs.values()):
            if type(value) is FakeTensor and self.concerns(value):
                raise Break("SB002", f"{name} of a tensor that a captured branch may have left as it was")

    def conflict(self, outputs: list[Any], inputs: list[Any]) -> bool:
        """Whether something outside could see that a merged tensor is not the tensor it may have been."""
        tensors = [each for each in outputs if type(each) is FakeTensor]
        visible = {storage_of(each) for each in (*tensors, *inputs)}
        seen: set[int] = set()
        for each in tensors:
            if id(each) in self.choices:
                continue  # the residual finds out
            others = self.storages.get(storage_of(each), set())
            if others & (visible | seen):
                return True
            seen |= others
        return False
