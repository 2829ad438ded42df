"""Arrays on the memory of tensors: written to, viewed and handed out as numpy's are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_expressions import difference

import stator
from stator import events


def written(x: torch.Tensor) -> Any:
    a = x.numpy()
    a[0] = 1
    a += 1
    a[1, ::-1] = np.arange(3.0)
    return x * 2, a


def written_through_views(x: torch.Tensor) -> Any:
    a = x.numpy()
    a.reshape(-1)[0] = 9
    a.T[1, 1] = 7
    row = a[1]
    row *= 2
    return a, row, a.T, x


def written_by_the_tensor(x: torch.Tensor) -> Any:
    a = x.numpy()
    x.add_(1)
    view = a[1:]
    x.mul_(2)
    return a.sum(), view.sum(), view


def masked(x: torch.Tensor) -> Any:
    a = x.numpy()
    a[a > 2] = 0
    a[[0, 1], [1, 0]] = 5
    a[0, np.argmax(a[1])] = 8
    return a, x.sum()


def out_arguments(x: torch.Tensor) -> Any:
    a = x.numpy()
    total = np.zeros(3, dtype=np.float32)
    np.add(a[0], 1, out=total)
    np.sum(a, axis=0, out=a[1])
    result = np.multiply(a, 2, a)
    return total, result, a, result is a


def made_inside(x: torch.Tensor) -> Any:
    made = np.zeros((2, 3), dtype=np.float32)
    made[:] = x.numpy()
    made[0, 0] = x.numpy().max()
    made.sort()
    made.fill(2)
    np.fill_diagonal(made, 3)
    np.copyto(made[0], x.numpy()[1])
    return made, torch.from_numpy(made) + 1


def copies(x: torch.Tensor) -> Any:
    a = x.numpy()
    kept = a.copy(), a[0, 0], a.astype(np.float32), a.sum(), np.array(a), a[[0]]
    a += 1
    return kept, a


def views(x: torch.Tensor) -> Any:
    a = x.numpy()
    return a, a.T, a[1:], a.reshape(-1), a[:, ::-1], np.expand_dims(a, 0), np.sin(a) * 0, np.asarray(a), a.ravel()


def both_ways(x: torch.Tensor) -> Any:
    a = np.sin(x.numpy()) * 0 + 2
    t = torch.from_numpy(a)
    t += 1
    a *= 2
    return a, t, a.sum()


def views_of_fresh(x: torch.Tensor) -> Any:
    a = x.numpy() + 1
    v = a[:, 1]
    v *= 2
    return v, a


def reversed_then_written(x: torch.Tensor) -> Any:
    a = x.numpy()
    back = a[::-1]
    a[0] = 5
    return back.sum(), back, a


def written_backwards(x: torch.Tensor) -> Any:
    a = x.numpy()
    back = a[::-1]
    back[0] = 5
    return back, a, x


def given_to_numpy(x: torch.Tensor) -> Any:
    a = np.asarray(x)
    a[0] += 1
    b = np.array(x)
    b[1] = 7
    parts = np.array([x[0], x[1]]), np.concatenate([x, a]), np.stack((x, b)), np.where(a > 2, x, 0)
    return a, b, parts, np.ones_like(x, dtype=np.float64), np.full_like(x, 2.5), np.ascontiguousarray(x)


PROGRAMS = [given_to_numpy, written, written_through_views, written_by_the_tensor, masked, out_arguments, made_inside, copies, views,
            both_ways, views_of_fresh, reversed_then_written, written_backwards]
BREAKS = {reversed_then_written, written_backwards}


def arrays_in(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [found for part in value for found in arrays_in(part)]
    return [value] if isinstance(value, (np.ndarray, torch.Tensor)) else []


def memory_pattern(result: Any, x: torch.Tensor) -> list[bool]:
    """Which results share memory, with each other and with the argument."""
    found = [each.detach().numpy() if isinstance(each, torch.Tensor) else each for each in [x, *arrays_in(result)]]
    return [np.may_share_memory(left, right) for left in found for right in found]


def alike(theirs: Any, ours: Any) -> str | None:
    if isinstance(theirs, torch.Tensor):
        return None if torch.equal(theirs, ours) else f"{ours} instead of {theirs}"
    if isinstance(theirs, (list, tuple)):
        return next(filter(None, (alike(t, o) for t, o in zip(theirs, ours, strict=True))), None)
    return difference(theirs, ours, exact=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_memory(program: Any, backend: str) -> None:
    compiled = stator.compile(program, backend=backend)
    with events.record() as log:
        for shift in (0.0, 0.5, -3.0):
            x, y = (torch.arange(6.0).reshape(2, 3) + shift for _ in range(2))
            theirs, ours = program(x), compiled(y)
            assert alike(theirs, ours) is None, alike(theirs, ours)
            assert torch.equal(x, y)
            assert memory_pattern(ours, y) == memory_pattern(theirs, x)
    breaks = [event for event in log if isinstance(event, events.GraphBreak)]
    assert bool(breaks) == (program in BREAKS), [event.cause for event in breaks]
    assert not any(isinstance(event, events.EagerFallback) for event in log)


def test_open_sizes_become_facts_where_nothing_may_break() -> None:
    def program(x):
        return (x * 2).numpy().reshape(-1) + 1, np.ones_like(x)

    compiled = stator.compile(program, backend="eager", fullgraph=True, dynamic=True)
    for size in (2, 3, 2):
        x = torch.arange(3.0 * size).reshape(size, 3)
        assert alike(program(x), compiled(x)) is None
