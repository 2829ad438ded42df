"""Remains of a trace: no weak references to the user's tensors that wait for the collector.

CPython 3.11 counts the weak references of a dying object, makes a tuple for them, which may collect garbage, and walks
through as many as there were: where garbage held some of them it reads behind the end.
"""

from __future__ import annotations

import copy
import gc
import weakref

import torch

import stator


def test_no_weak_references_in_garbage() -> None:
    base = torch.ones(2, 8)

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        mine = copy.deepcopy({"view": base[1, 2:6]})["view"]
        return mine + x, mine.storage_offset()

    compiled = stator.compile(fn, backend="eager")
    gc.collect()
    gc.disable()
    try:
        for step in range(3):
            assert torch.equal(compiled(torch.ones(4))[0], fn(torch.ones(4))[0])
            base.add_(step)
        torch_kinds = [type(each) for each in weakref.getweakrefs(base) if type(each).__module__ == "torch.utils.weak"]
    finally:
        gc.enable()
    assert not torch_kinds
