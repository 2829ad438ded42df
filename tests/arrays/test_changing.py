"""numpy arrays and scalars among the arguments that change from call to call are inputs of one graph."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from test_memory import alike

import stator
from stator import events


def added(x: torch.Tensor, n: Any) -> Any:
    return x + n, n * x, x - 2


def handed_back(x: torch.Tensor, n: Any) -> Any:
    return n, n + 1, n * 2.5, -n, abs(n), type(n), n.dtype, float(n), [n], torch.tensor(n), torch.tensor([n, n])


def sliced(x: torch.Tensor, n: Any) -> Any:
    return x[:n], x[n % 4], x.repeat(n), torch.zeros(n)


def reduced(x: torch.Tensor, a: Any) -> Any:
    return torch.from_numpy(a * 2) + x, a.sum(), a.max(0), a[1:], (a - a.mean()) / 2


def written(x: torch.Tensor, a: Any) -> Any:
    a[0] = x.numpy()[1]
    a += 1
    return x * float(a[0]), a


def iterated(x: torch.Tensor, a: Any) -> Any:
    return [v * 2 for v in a], len(a), [row + 1 for row in a.reshape(2, 2)]


def branched(x: torch.Tensor, n: Any) -> Any:
    if n > 3:
        return x + 1
    return x - n


def count(program: Any, calls: list[Any], **settings: Any) -> tuple[int, list[str]]:
    """Each call equals eager; how many captures there were, and the breaks."""
    compiled = stator.compile(program, backend="eager", **settings)
    with events.record() as log:
        for given in calls:
            mine, theirs = copy.deepcopy(given), copy.deepcopy(given)
            found = alike(program(*theirs), compiled(*mine))
            assert found is None, found
            assert alike(theirs, mine) is None
    assert not any(isinstance(event, events.EagerFallback) for event in log)
    return (sum(isinstance(event, events.CaptureFinished) for event in log),
            [event.cause for event in log if isinstance(event, events.GraphBreak)])


@pytest.mark.parametrize("cls", [np.int64, np.int32, np.float64, np.float32])
@pytest.mark.parametrize("program", [added, handed_back])
def test_scalars(program: Any, cls: type) -> None:
    captures, breaks = count(program, [(torch.arange(4.0), cls(i)) for i in range(10)])
    assert captures <= 2, captures
    assert not breaks


def test_sizes() -> None:
    captures, breaks = count(sliced, [(torch.arange(4.0), np.int64(i)) for i in (2, 3, 4, 5, 6, 7)])
    assert captures <= 4, captures
    assert not breaks


@pytest.mark.parametrize("program", [reduced, written, iterated])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_arrays(program: Any, dtype: Any) -> None:
    captures, breaks = count(program, [(torch.arange(4.0), (np.arange(4) + i).astype(dtype)) for i in range(8)])
    assert captures <= 2, captures
    assert not breaks


def test_a_branch_is_data() -> None:
    count(branched, [(torch.arange(4.0), np.int64(i)) for i in range(8)])


def test_other_kinds() -> None:
    """A scalar of another type, a Python number, a read-only or reversed array: each is right."""
    scalars = [np.int64(1), np.int64(2), np.float64(3), 4, np.int64(5), True, np.float32(0.5), np.bool_(True)]
    count(added, [(torch.arange(4.0), n) for n in scalars if type(n) is not np.bool_])
    still = np.arange(4.0)
    still.flags.writeable = False
    count(reduced, [(torch.arange(4.0), a) for a in (np.arange(4.0), np.arange(4.0) + 1, still, np.arange(4.0)[::-1].copy(),
                                                     np.arange(4.0)[::-1].copy() * 2, np.arange(8.0)[::2])])


def test_an_array_on_the_memory_of_a_tensor_argument() -> None:
    def seen(x: torch.Tensor, a: Any) -> Any:
        a += 1
        return x.sum()

    compiled = stator.compile(seen, backend="eager")
    for i in range(5):
        mine, theirs = torch.arange(4.0) + i, torch.arange(4.0) + i
        assert seen(theirs, theirs.numpy()) == compiled(mine, mine.numpy())
        assert torch.equal(mine, theirs)
        other = np.arange(4.0)
        assert seen(theirs, other.copy()) == compiled(mine, other)


def test_sizes_that_only_the_graph_knows() -> None:
    def program(x: torch.Tensor) -> Any:
        counts = x.numpy().astype(int)
        return np.repeat(x.numpy(), counts), np.unique(x.numpy()), np.array([x[x > 2]])

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for shift in (0.0, 1.0, 2.0):
        x = torch.arange(4.0) + shift
        for ours, theirs in zip(compiled(x), program(x), strict=True):
            assert ours.dtype == theirs.dtype and ours.tolist() == theirs.tolist()


def test_a_module_that_loads_a_part_of_itself() -> None:
    """np.unique asks for numpy.ma, which is imported then; a process that has not done so is needed."""
    script = ("import sys, numpy as np, torch, stator; assert 'numpy.ma' not in sys.modules; "
              "f = stator.compile(lambda x: np.unique(x.numpy()), backend='eager', options={'strict': True}); "
              "print(f(torch.tensor([2.0, 1.0, 2.0])).tolist(), 'numpy.ma' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "[1.0, 2.0] True\n", done.stderr


def picked_by_hand(x: torch.Tensor, a: Any) -> Any:
    return np.ndarray.__getitem__(a, 1), np.ndarray.__getitem__(a, slice(1, None)), np.ndarray.__getitem__(a + 1, 0), x * 2


def test_items_picked_by_hand() -> None:
    compiled = stator.compile(picked_by_hand, backend="eager", fullgraph=True, options={"strict": True})
    for step in range(4):
        given = torch.ones(2), np.arange(3.0) + step
        assert str(compiled(*given)) == str(picked_by_hand(*given))
