"""Copies of parameters and state for a step that fails: none where the errors come before the writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events


def stepped(optimiser_class: Any, compiled: bool, **options: Any) -> tuple[Any, nn.Module, Any, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10))
    optimiser = optimiser_class(model.parameters(), **options)

    def step(ids: Any) -> Any:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(ids), ids)
        loss.backward()
        optimiser.step()
        return loss.detach()

    with events.record() as log:
        run = stator.compile(step, backend="eager") if compiled else step
        losses = [run(torch.tensor([1, 2, number])) for number in (3, 4, 5)]
    return run, model, losses, log


def residual_of(log: Any) -> str:
    return [each for each in log if isinstance(each, events.CaptureFinished)][-1].residual_source


@pytest.mark.parametrize("optimiser, options, copies", [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, False), (torch.optim.Adam, {"lr": 0.1, "foreach": False}, True)])
def test_a_failing_step_leaves_what_eager_leaves(optimiser: Any, options: Any, copies: bool) -> None:
    ours, theirs = (stepped(optimiser, compiled, **options) for compiled in (True, False))
    assert ("copy_contents" in residual_of(ours[3])) is copies
    for number in (99, 6):
        for run, _, losses, _ in (ours, theirs):
            try:
                losses.append(run(torch.tensor([1, 2, number])))
            except IndexError as error:
                losses.append(str(error))
    assert list(map(str, ours[2])) == list(map(str, theirs[2]))
    for left, right in zip(ours[1].parameters(), theirs[1].parameters(), strict=True):
        assert torch.equal(left, right) and torch.equal(left.grad, right.grad)
        assert left._version == right._version


def test_an_error_behind_a_write_restores_contents() -> None:
    def program(x: Any, index: Any, log: Any) -> Any:
        log.append(1)
        x.add_(1)
        return x[index]

    compiled = stator.compile(program, backend="eager")
    x, log = torch.zeros(3), []
    compiled(x, torch.tensor([0]), log)
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([7]), log)
    assert (x.tolist(), log, x._version) == ([2.0, 2.0, 2.0], [1, 1], 2)


def test_a_step_count_that_divides_by_zero_raises_as_in_eager() -> None:
    def program(count: Any, x: Any) -> Any:
        x.add_(1)
        return x / (1 - 0.5 ** count.item()) ** 0.5

    for backend in ("eager", "aot_eager"):
        compiled = stator.compile(program, backend=backend)
        compiled(torch.tensor(1.0), torch.ones(2))
        for count, error in ((0.0, ZeroDivisionError), (2.0, None)):
            x, same = torch.ones(2), torch.ones(2)
            if error is None:
                assert torch.equal(compiled(torch.tensor(count), x), program(torch.tensor(count), same))
            else:
                for run, given in ((compiled, x), (program, same)):
                    try:
                        print(run(torch.tensor(count), given))
                    except error:
                        pass
            assert torch.equal(x, same)
