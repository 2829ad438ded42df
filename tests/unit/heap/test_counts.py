"""itertools.count from outside, also where CPython's own account of it fails (at the largest C integer)."""

from __future__ import annotations

import itertools
import sys

import pytest
import torch

import stator


@pytest.mark.parametrize("start", [0, -3, sys.maxsize - 3, sys.maxsize - 1, sys.maxsize, sys.maxsize + 1, 1 << 80, 0.5])
def test_a_count_goes_on(start: float) -> None:
    ours, theirs = itertools.count(start), itertools.count(start)
    whole = "__reduce__" in vars(itertools.count)  # since 3.14, where a count stands cannot be read: a graph break
    compiled = stator.compile(lambda x: (x + 1, next(ours), next(ours)), backend="eager", fullgraph=whole)
    for _ in range(3):
        assert compiled(torch.ones(1))[1:] == (next(theirs), next(theirs))
    assert next(ours) == next(theirs)
