"""mark_unbacked: nothing is decided from the present size, so what the program says of it is checked at every call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from stator import events


def raises_below_three(x: Any) -> Any:
    if x.shape[0] < 3:
        raise ValueError("small")
    return x * 2


def checks(x: Any) -> Any:
    torch._check(x.shape[0] >= 3)
    return x * 2


def checks_with_words(x: Any) -> Any:
    torch._check(x.shape[0] >= 3, lambda: "few")
    return x * 2


def checks_another_relation(x: Any) -> Any:
    torch._check(x.shape[0] != 2)
    return x * 2


def checks_what_it_does_not_use(x: Any) -> Any:
    torch._check(x.shape[0] * 2 > 5)
    return torch.ones(2)


def checks_and_computes_nothing(x: Any) -> Any:
    torch._check(x.shape[0] >= 3)
    return 7


def checks_after_a_write(x: Any) -> Any:
    y = x * 2
    x.add_(1)
    torch._check(x.shape[0] > 3)
    return y


def takes_three(x: Any) -> Any:
    return x.narrow(0, 0, 3)


def takes_pairs(x: Any) -> Any:
    return x.view(x.shape[0] // 2, 2)


def seen(function: Any, size: int) -> Any:
    x = torch.arange(float(size))
    stator.mark_unbacked(x, 0)
    try:
        value = function(x)
        return value.tolist() if isinstance(value, torch.Tensor) else value, x.tolist()
    except (RuntimeError, ValueError, AssertionError) as error:
        return type(error), str(error), x.tolist()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [raises_below_three, checks, checks_with_words, checks_another_relation,
                                     checks_what_it_does_not_use, checks_and_computes_nothing, checks_after_a_write,
                                     takes_three, takes_pairs])  # fmt: skip
def test_what_is_said_of_a_size_is_checked_at_every_call(program: Any, backend: str) -> None:
    compiled = stator.compile(program, backend=backend, options={"strict": True})
    with events.record() as log:
        for size in (5, 2, 6, 1, 4):
            assert seen(compiled, size) == seen(program, size), size
    assert not [event for event in log if isinstance(event, events.GraphBreak)]
