"""numpy on the memory of tensors is one graph, and gives what numpy gives: value, type, layout; again with other values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from array_programs import CLOSE, EXACT, expressions, inputs, program

import stator
from stator import events


def difference(theirs: Any, ours: Any, exact: bool) -> str | None:
    """The first difference from eager's result, or None."""
    if type(theirs) is not type(ours):
        return f"{type(ours)} instead of {type(theirs)}"
    if isinstance(theirs, (list, tuple)):
        if len(theirs) != len(ours):
            return f"{len(ours)} values instead of {len(theirs)}"
        return next(filter(None, (difference(t, o, exact) for t, o in zip(theirs, ours, strict=True))), None)
    if not isinstance(theirs, (np.ndarray, np.generic)):
        same = theirs == ours if exact or type(theirs) is not float else abs(theirs - ours) < 1e-6
        return None if same else f"{ours} instead of {theirs}"
    if theirs.dtype != ours.dtype or theirs.shape != ours.shape:
        return f"{ours.dtype} of {ours.shape} instead of {theirs.dtype} of {theirs.shape}"
    if theirs.size and theirs.strides != ours.strides:
        return f"strides {ours.strides} instead of {theirs.strides}"
    numbers = theirs.dtype.kind in "fc"
    same = np.array_equal(theirs, ours, equal_nan=numbers) if exact or not numbers \
        else np.allclose(theirs, ours, rtol=1e-5, atol=1e-6, equal_nan=True)
    return None if same else f"{ours} instead of {theirs}"


@pytest.mark.parametrize(("expression", "exact"), [(each, True) for each in expressions(EXACT)]
                         + [(each, False) for each in expressions(CLOSE)])
def test_expression(expression: str, exact: bool) -> None:
    function = program(expression)
    compiled = stator.compile(function, backend="eager", fullgraph=True)
    with events.record() as log:
        for shift in (0.0, 0.5, 0.0):
            found = difference(function(*inputs(shift)), compiled(*inputs(shift)), exact)
            assert found is None, found
    assert sum(isinstance(event, events.CaptureFinished) for event in log) == 1
    assert not any(isinstance(event, events.EagerFallback) for event in log)


@pytest.mark.parametrize("expression", ["np.sin(a) + b[0]", "a.sum(0)", "a.T", "a.max() * 2", "np.where(m, a, 0)"])
def test_other_types(expression: str) -> None:
    """A tensor of another type or shape is another capture, and right again."""
    function = program(expression)
    compiled = stator.compile(function, backend="eager")
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
        x, y, n = inputs()
        given = x.to(dtype), y.to(dtype), n
        assert difference(function(*given), compiled(*given), False) is None
    with pytest.raises(RuntimeError, match="requires grad"):
        compiled(x.requires_grad_(), y, n)


@pytest.mark.parametrize("expression", ["a + 1", "np.sin(a)", "a.sum()", "a[::-1]", "a.T", "np.clip(a, 1, 3)"])
def test_turned_off(expression: str) -> None:
    function = program(expression)
    compiled = stator.compile(function, backend="eager", options={"trace_numpy": False})
    with events.record() as log:
        assert difference(function(*inputs()), compiled(*inputs()), True) is None
    assert any(isinstance(event, events.GraphBreak) for event in log)
