"""The curriculum is large enough, its shares are kept, and its comparison can fail."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import same_as_eager as harness
from curriculum import Case, cases_of, load_topic, ramp, world_of_case
from faults import FAULTS
from same_as_eager import call, fresh_inputs, same_as_eager

TOPICS = sorted(Path(__file__).parent.glob("test_*.py"))[1:]


def all_cases() -> list[Case]:
    return [case for path in TOPICS for case in cases_of(load_topic(path)).values()]


def test_the_curriculum_is_large_enough() -> None:
    assert len(TOPICS) >= 40
    assert len(all_cases()) >= 400
    assert all(len(cases_of(load_topic(path))) >= 5 for path in TOPICS)


def test_topics_are_numbered_without_gaps() -> None:
    assert [int(path.name.split("_")[1]) for path in TOPICS] == list(range(1, len(TOPICS) + 1))


def test_few_cases_may_break() -> None:
    cases = all_cases()
    assert sum(case.breaks is not None for case in cases) < 0.05 * len(cases)


class OperationCounter(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func: Callable[..., Any], kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def operations_of_first_call(path: Path, name: str) -> int | None:
    """How many tensor operations eager runs; None if the program raises."""
    world = world_of_case(path, name)
    inputs = fresh_inputs(world.calls[0])
    with OperationCounter() as counter, contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with harness.torch_modes_kept():
                world.fn(*inputs.args, **inputs.kwargs)
        except Exception:  # an escaping exception is what many cases are about
            return None
    return counter.count


@pytest.mark.parametrize("path", TOPICS, ids=lambda path: path.stem)
def test_expected_graphs_agree_with_eager(path: Path) -> None:
    """A case expects a graph if and only if its first call runs a tensor operation."""
    for case in cases_of(load_topic(path)).values():
        operations = operations_of_first_call(path, case.name)
        assert operations is None or (operations > 0) == (case.graphs > 0), f"{case.name}: {operations} operations"


COUNTS: list[int] = []


def returns_alias(x: torch.Tensor, items: list) -> list:
    print("sum of", len(items))
    return [x, items, items]


def mutates(x: torch.Tensor) -> torch.Tensor:
    COUNTS.append(x.dim())
    return x.add_(1)


def raises(x: torch.Tensor) -> None:
    y = x + 1
    raise ValueError(f"bad shape {tuple(y.shape)}")


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("STATOR_TEST_IDENTITY", "1")
    monkeypatch.delenv("STATOR_TEST_FAULT", raising=False)
    return monkeypatch


FOUND_BY = [
    ("value", returns_alias, call(ramp(2), [1])),
    ("type", returns_alias, call(ramp(2), [1])),
    ("alias", returns_alias, call(ramp(2), [1])),
    ("print", returns_alias, call(ramp(2), [1])),
    ("mutation", returns_alias, call(ramp(2), [1])),
    ("exception", returns_alias, call(ramp(2), [1])),
    ("exception", raises, call(ramp(2))),
    ("line", raises, call(ramp(2))),
    ("context", raises, call(ramp(2))),
    ("note", raises, call(ramp(2))),
    ("rng", mutates, call(ramp(2))),
    ("grad_mode", mutates, call(ramp(2))),
]


@pytest.mark.parametrize(("fault", "fn", "inputs"), FOUND_BY)
def test_each_fault_is_found(identity: pytest.MonkeyPatch, fault: str, fn: object, inputs: harness.Call) -> None:
    same_as_eager(fn, inputs, setup=lambda: {"COUNTS": []})
    identity.setenv("STATOR_TEST_FAULT", fault)
    with pytest.raises(AssertionError, match="differs from eager"):
        same_as_eager(fn, inputs, setup=lambda: {"COUNTS": []})


def test_every_fault_is_tried() -> None:
    assert {fault for fault, _, _ in FOUND_BY} == set(FAULTS)


def unlike_on_second_run(x: torch.Tensor) -> torch.Tensor:
    COUNTS.append(1)
    return x + len(COUNTS)


def test_state_that_leaks_between_sides_is_found(identity: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="differs from eager"):
        same_as_eager(unlike_on_second_run, call(ramp(2)))
    same_as_eager(unlike_on_second_run, call(ramp(2)), setup=lambda: {"COUNTS": []})
