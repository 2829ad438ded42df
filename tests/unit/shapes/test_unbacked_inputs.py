"""mark_unbacked: nothing is decided from the present size, so what the program says of it is checked at every call."""

from __future__ import annotations

import warnings
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


# ---------------------------------------------------------------------- sizes that are broadcast


def sizes_of_a_sum(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    return z, z.shape[0] * 2, x.shape[0], z.view(z.shape[0] * 4)


def sum_after_a_draw(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x + y + torch.rand(1), torch.rand(2), x.shape


def sum_written(x: torch.Tensor, y: torch.Tensor) -> Any:
    y += x
    return y * 2, x.shape[0]


def expanded(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.expand(3, 4) * 2, x.shape[0] + y.shape[0]


def both(function: Any, rows: int, others: int) -> Any:
    x, y = torch.arange(rows * 4.0).view(rows, 4), torch.ones(others, 4)
    stator.mark_unbacked(x, 0)
    torch.manual_seed(rows)
    try:
        value = function(x, y)
    except RuntimeError as error:
        return type(error), str(error), y.tolist()
    return [each.tolist() if isinstance(each, torch.Tensor) else each for each in value], y.tolist(), torch.rand(1).item()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [sizes_of_a_sum, sum_after_a_draw, sum_written, expanded])
def test_a_size_of_one_is_broadcast(program: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also as the first call, and with a compiler, which drops the graph's own assertions."""
    monkeypatch.setenv("STATOR_STRICT", "1")
    for order in ((3, 1, 3, 1), (1, 3, 1), (3, 1, 5)):
        compiled = stator.compile(program, backend=backend)
        for rows in order:
            others = 3 if rows != 5 else 5
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                found = both(compiled, rows, others)
            assert found == both(program, rows, others), (order, rows)


def test_a_warning_names_the_size() -> None:
    def named(rows: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return rows + y

    compiled = stator.compile(named, backend="eager")
    both(lambda x, y: (compiled(x, y),), 3, 3)
    with pytest.warns(RuntimeWarning, match=r"rows\.size\(0\) is marked unbacked.* rows\.size\(0\) == 3") as caught:
        both(lambda x, y: (compiled(x, y),), 1, 3)
    assert "bug" not in str(caught[0].message)


@pytest.mark.parametrize("shape", [(3,), (3, 4)])
def test_a_parameter_with_a_gradient(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradient has the same sizes, of which nothing could be asked."""
    monkeypatch.setenv("STATOR_STRICT", "1")

    def program(p: torch.Tensor) -> Any:
        return p * 2, isinstance(p, torch.nn.Parameter), p.is_leaf, p.requires_grad

    compiled = stator.compile(program, backend="eager")
    for rows in (3, 5):
        parameter = torch.nn.Parameter(torch.randn(rows, *shape[1:]))
        parameter.grad = torch.randn_like(parameter)
        for dim in range(parameter.dim()):
            stator.mark_unbacked(parameter, dim)
        found, expected = compiled(parameter), program(parameter)
        assert torch.equal(found[0], expected[0]) and found[0].requires_grad and found[1:] == expected[1:]
