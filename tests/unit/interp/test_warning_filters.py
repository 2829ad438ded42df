"""A `catch_warnings` that was entered outside and is left inside: what it puts back may make exceptions of warnings."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import stator


def leave(x: Any, manager: Any) -> Any:
    manager.__exit__(None, None, None)
    try:
        warnings.warn("after", stacklevel=1)
    except UserWarning as error:
        return x + 1, str(error)
    return x, None


def entered(before: str) -> Any:
    warnings.resetwarnings()
    warnings.simplefilter(before, UserWarning)
    manager = warnings.catch_warnings()
    manager.__enter__()
    warnings.resetwarnings()  # none of those that are in force raises
    warnings.simplefilter("ignore", UserWarning)
    return manager


@pytest.mark.parametrize("order", [("error", "error"), ("ignore", "error", "ignore"), ("error", "ignore", "error")])
def test_filters_that_are_put_back(order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    compiled = stator.compile(leave, backend="eager")
    x = torch.ones(2)
    with warnings.catch_warnings():
        for before in order:
            expected = leave(x, entered(before))
            value = compiled(x, entered(before))
            assert torch.equal(value[0], expected[0]) and value[1] == expected[1]
            assert warnings.filters[0][0] == before
