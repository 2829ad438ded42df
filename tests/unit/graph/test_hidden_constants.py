"""Tensors of one known number, computed with floats that change from call to call: their values are eager's, not NaN."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator


def changed_in_place(f: float) -> Any:
    t = torch.tensor(1.0)
    t *= 0.96**f
    return 1.0 - t.item(), t


def divided(f: float) -> Any:
    return (f / torch.tensor(2.0)).item(), (torch.tensor([2.0]) - f).item()


def written_to_another(f: float) -> Any:
    out = torch.tensor(0.0)
    torch.add(torch.tensor(1.0), f, out=out)
    return out.item()


def asked(f: float) -> Any:
    return torch.isnan(torch.tensor(1.0) * f).item(), bool(torch.tensor(1) > f), 3 if torch.tensor(True) * f > 1 else 4


def of_several(f: float) -> Any:
    t = torch.tensor(1.0)
    torch._foreach_addcdiv_([t], [torch.tensor(2.0)], [torch.tensor(4.0)], [f])
    return t.item(), torch.lerp(torch.tensor(1.0), torch.tensor(2.0), f).item()


def known_as_before(f: float) -> Any:
    t = torch.tensor(1.0)
    return t * f, [10, 20, 30][int(t.item())], torch.tensor(float("nan")).item() != f


def written_beside_others(f: float) -> Any:
    """A list of a constant and a tensor that is none."""
    t, view = torch.tensor([0.0, 1.0]), torch.tensor(0.0)
    alias = view.view(1)
    torch._foreach_add_([view, t, torch.ones(2) * f], 1.0)
    torch._foreach_mul_([t, torch.full((2,), f)], torch.tensor(2.0))
    return view.item(), alias.item(), t.tolist()


PROGRAMS = [changed_in_place, written_beside_others, divided, written_to_another, asked, of_several, known_as_before]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_float_that_changes(program: Any, backend: str) -> None:
    compiled = stator.compile(program, backend=backend)
    for f in (0.25, 0.5, 3.0, 0.0):
        assert str(compiled(f)) == str(program(f))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_optimiser_whose_state_begins_with_one_number(backend: str) -> None:
    def step(optimiser: Any, weight: Any) -> Any:
        optimiser.step()
        return weight + 0

    compiled = stator.compile(step, backend=backend)
    for decay in (0.004, 0.006, 0.007):
        seen = []
        for function in (step, compiled):
            weight = torch.nn.Parameter(torch.ones(3))
            weight.grad = torch.tensor([1.0, 2.0, -3.0])
            optimiser = torch.optim.NAdam([weight], momentum_decay=decay, foreach=False)
            seen.append([function(optimiser, weight).detach() for _ in range(3)])
        torch.testing.assert_close(seen[1], seen[0])
