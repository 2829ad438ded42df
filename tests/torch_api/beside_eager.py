"""A differentiable program run eagerly and captured: results, gradients, what hooks noted, twice, from fresh state.

    check(make)                 `make(log)` gives a function and a list of arguments; one graph, equal to eager
    check(make, breaks="SB016") the same through graph breaks; fullgraph=True refuses with that code
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import stator
from stator import events

BACKENDS = ("eager", "aot_eager")


def values(seed: int = 7, *shapes: tuple[int, ...], wants_grad: bool = True) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=source).requires_grad_(wants_grad) for shape in shapes or ((3, 4),)]


def portrait(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return repr(value) if isinstance(value, (int, float, str, bool, type(None), torch.dtype)) else type(value)
    parts = [value.a, value.b] if type(value).__name__ == "TwoTensor" else [value.detach().as_subclass(torch.Tensor)]
    grad = portrait(value.grad) if value.is_leaf else None
    return (type(value), value.dtype, tuple(value.shape), value.requires_grad, value.is_leaf, grad,
            [part.tolist() for part in parts])


def observe(make: Callable[[list[Any]], Any], wrap: Callable[[Any], Any], calls: int = 2) -> Any:
    torch.manual_seed(0)
    log: list[Any] = []
    function, args = make(log)
    compiled, seen = wrap(function), []
    torch.manual_seed(0)
    for _ in range(calls):
        out = compiled(*args)
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if results:
            sum(leaf.abs().sum() for leaf in results).backward()
        seen.append([portrait(leaf) for leaf in (*tree_leaves(out), *args)])
    return seen, log


def same(expected: Any, actual: Any) -> bool:
    if isinstance(expected, (list, tuple)) and type(expected) is type(actual):
        return len(expected) == len(actual) and all(map(same, expected, actual))
    if isinstance(expected, float) and isinstance(actual, float):
        return expected == pytest.approx(actual, rel=1e-4, abs=1e-5, nan_ok=True)
    return bool(expected == actual)


def check(make: Callable[[list[Any]], Any], backend: str = "eager", breaks: str = "", calls: int = 2) -> None:
    expected = observe(make, lambda f: f, calls)
    if breaks:
        with pytest.raises(stator.Unsupported, match=breaks):
            observe(make, lambda f: stator.compile(f, backend=backend, fullgraph=True), calls)
    with events.record() as log:
        actual = observe(make, lambda f: stator.compile(f, backend=backend, fullgraph=not breaks), calls)
    failed = [event.why for event in log if isinstance(event, events.EagerFallback) and event.why.startswith("it raised")]
    assert not failed, "the program ran as it is, since its graph raised"
    assert same(expected, actual), f"eager: {expected}\ncompiled: {actual}"
