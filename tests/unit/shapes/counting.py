"""Compile, call, compare with eager, count.   fn and its calls  ->  how many compiles they took"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch

import stator
from stator import events


def same(want: Any, got: Any) -> bool:
    """Equal in type and value; floats of tensors may differ in the last bits."""
    if type(want) is not type(got):
        return False
    if isinstance(want, torch.Tensor):
        return want.shape == got.shape and want.dtype == got.dtype and torch.allclose(want, got, atol=1e-6, equal_nan=True)
    if isinstance(want, (tuple, list)):
        return len(want) == len(got) and all(map(same, want, got))
    if isinstance(want, dict):
        return list(want) == list(got) and all(same(want[key], got[key]) for key in want)
    return bool(want == got) or isinstance(want, float) and abs(want - got) < 1e-6


def run(fn: Callable[..., Any], calls: Iterable[tuple[Any, ...]], *, backend: str = "eager",
        **options: Any) -> tuple[int, Any]:
    """The number of compiles, and the compiled function; every call is compared with eager."""
    compiled = stator.compile(fn, backend=backend, **{"fullgraph": True, **options})
    with events.record() as log:
        for args in calls:
            want = fn(*copy.deepcopy(args))
            got = compiled(*copy.deepcopy(args))
            assert same(want, got), f"{args}: {got!r} instead of {want!r}"
    return sum(isinstance(event, events.CaptureFinished) for event in log), compiled


def shape_texts(compiled: Any) -> list[str]:
    """The relations that the entries check."""
    return [guard.text() for _, _, tag in compiled.entries() for guard in tag.guards if guard.kind.name == "SHAPE"]
