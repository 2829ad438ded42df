"""Graphs that autograd and a compiler treat differently are run as they are, and no others."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import stator
from stator import events
from tests.comparison import same_as_eager


def as_they_are(log: list[Any]) -> list[str]:
    return [event.why for event in log if isinstance(event, events.EagerFallback)]


def test_results_with_operations_in_common_are_compiled() -> None:
    def program(x: torch.Tensor) -> Any:
        inner = (x * 2).exp()
        first, second = inner.sum(), (inner * inner).sum()
        first.backward(retain_graph=True)
        second.backward()
        return first.detach(), x.grad

    ours, theirs = (torch.ones(3, requires_grad=True) for _ in range(2))
    with events.record() as log:
        found = stator.compile(program, backend="aot_eager")(ours)
    assert str(found) == str(program(theirs))
    assert not as_they_are(log)


def test_results_without_any_are_differentiated_one_by_one() -> None:
    """AOTAutograd's one backward frees what the second result needs."""
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        first, second = (x * 2).exp().sum(), (y * y).exp().sum()
        first.backward()
        second.backward()
        return first.detach(), x.grad, y.grad

    for captured in (True, False):
        ours, theirs = ([torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)] for _ in range(2))
        with events.record() as log, stator.config.patch(capture_backward=captured):
            found = stator.compile(program, backend="aot_eager")(*ours)
        assert str(found) == str(program(*theirs))
        assert len(as_they_are(log)) == (0 if captured else 1)


def test_writes_to_one_of_two_inputs_are_counted() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        x.mul_(y)
        x.add_(y)
        return y * 2

    ours, theirs, other = torch.ones(3), torch.ones(3), torch.ones(3)
    stator.compile(program, backend="aot_eager")(ours, other)
    program(theirs, other)
    assert (ours._version, other._version) == (theirs._version, 0) and torch.equal(ours, theirs)


def test_a_checkpoint_without_gradients_has_its_effects_once() -> None:
    log: list[int] = []

    def noting(x: torch.Tensor) -> torch.Tensor:
        log.append(len(log))
        return x.sin()

    def program(x: torch.Tensor) -> Any:
        return checkpoint(noting, x, use_reentrant=False)

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3).sin())
    assert log == [0, 1]


def test_a_checkpoint_that_writes_again_to_what_was_written_before() -> None:
    """The backward pass runs it once more; that the place has changed already tells nothing."""
    def outcome(compile_it: Any) -> list[int]:
        log = [0]

        def noting(x: torch.Tensor) -> torch.Tensor:
            log[0] += 10
            return x.sin()

        def program(x: torch.Tensor) -> Any:
            log[0] += 1
            return checkpoint(noting, x, use_reentrant=False).sum()

        compile_it(program)(torch.ones(3, requires_grad=True)).backward()
        return log

    assert outcome(lambda fn: stator.compile(fn, backend="eager")) == outcome(lambda fn: fn) == [21]


def test_inputs_of_open_sizes_that_overlap() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(1)
        return x + y, y * 2

    compiled = stator.compile(program, backend="aot_eager", dynamic=True)
    with events.record() as log, warnings.catch_warnings():
        warnings.simplefilter("error")  # AOTAutograd is not tried first
        for size in (4, 5, 6):
            ours, theirs = torch.arange(size + 1.0), torch.arange(size + 1.0)
            assert str(compiled(ours[:-1], ours[1:])) == str(program(theirs[:-1], theirs[1:]))
            assert torch.equal(ours, theirs)
    assert len(as_they_are(log)) == 1


def written_after_its_base(x: torch.Tensor, row: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x[[0, 1]] = (x * weight)[[1, 0]]
    stator.graph_break()
    return torch.ops.aten.copy_.default(row, torch.ones(4))


def used_after_its_base(x: torch.Tensor, row: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x[[0, 1]] = (x * weight)[[1, 0]]
    stator.graph_break()
    y = row * 2
    row.add_(1)
    return y


@pytest.mark.parametrize("program", [written_after_its_base, used_after_its_base])
def test_a_view_without_a_history_yet(program: Any) -> None:
    """Autograd makes the history of a view when it is used: until then it is a leaf, which cannot be written to."""
    def arguments() -> Any:
        x = torch.arange(12.0).view(3, 4)[:]
        return (x, x[1], torch.ones(4, requires_grad=True)), {}

    same_as_eager(program, arguments, arguments, fullgraph=False, strict=True)
