"""The curriculum is large enough, and its shares are kept."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from curriculum import Case, cases_of, load_topic, world_of_case
from tests.comparison import fresh_inputs
from tests.comparison.call_outcome import torch_modes_kept

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
            with torch_modes_kept():
                world.fn(*inputs.args, **inputs.kwargs)
        except BaseException:  # an escaping exception is what many cases are about, also one that is no Exception
            return None
    return counter.count


@pytest.mark.parametrize("path", TOPICS, ids=lambda path: path.stem)
def test_expected_graphs_agree_with_eager(path: Path) -> None:
    """A case expects a graph if and only if its first call runs a tensor operation."""
    for case in cases_of(load_topic(path)).values():
        operations = operations_of_first_call(path, case.name)
        assert operations is None or (operations > 0) == (case.graphs > 0), f"{case.name}: {operations} operations"
