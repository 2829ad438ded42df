"""Operators whose schemas say too little of their writes: those of TorchScript, and those that write in two ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator

aten = torch.ops.aten
BACKENDS = ("eager", "aot_eager")


def zeroed(tensor: torch.Tensor, observed: torch.Tensor) -> int:
    aten._no_grad_zero_.default(tensor)
    return 1 if observed.sum().item() > 1 else 2


def zeroed_by_packet(tensor: torch.Tensor, observed: torch.Tensor) -> int:
    aten._no_grad_zero_(tensor)
    return 1 if observed.sum().item() > 1 else 2


def put(tensor: torch.Tensor, observed: torch.Tensor) -> int:
    aten.index_put_.hacked_twin(tensor, [torch.tensor([0, 2])], torch.zeros(2, 3))
    return 1 if observed[0].sum().item() > 1 else 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [zeroed, zeroed_by_packet, put])
def test_operators_of_torchscript_write(program: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher does not know them; what they call does the writing."""
    monkeypatch.setenv("STATOR_STRICT", "1")
    compiled = stator.compile(program, backend=backend)
    for _ in range(2):
        tensor, other = torch.ones(3, 3), torch.ones(3, 3)
        assert compiled(tensor, other) == 1 and tensor[0].sum() == 0 and other.sum() == 9
        tensor = torch.ones(3, 3)
        assert compiled(tensor, tensor[:]) == 2 and tensor[0].sum() == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_list_of_torchscript_is_a_copy(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")

    def program(a: torch.Tensor, b: torch.Tensor) -> Any:
        given = [a, b]
        return aten.sort.Tensor(given), given

    a, b = torch.tensor(2.0), torch.tensor(1.0)
    result, given = stator.compile(program, backend=backend)(a, b)
    assert result is None and given[0] is a and given[1] is b


def scale(state: list[torch.Tensor]) -> torch.Tensor:
    return aten._amp_update_scale.out(state[0], state[1], state[2], 2.0, 0.5, 1, out=state[3])


def noise(state: list[torch.Tensor]) -> torch.Tensor:
    return aten.rrelu_with_noise.out(state[0], state[1], 0.1, 0.3, True, out=state[3])


def noise_by_packet(state: list[torch.Tensor]) -> torch.Tensor:
    return aten.rrelu_with_noise(state[0], state[1], 0.1, 0.3, True, out=state[3])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [scale, noise, noise_by_packet])
def test_writers_of_outputs_and_inputs(program: Any, backend: str) -> None:
    """Functionalization hands the results of such operators to the wrong tensors."""
    def state() -> list[torch.Tensor]:
        second = torch.zeros(1, dtype=torch.int32) if program is scale else torch.zeros(3)
        return [torch.ones(1) if program is scale else torch.tensor([-1.0, -2.0, 3.0]), second, torch.ones(1), torch.full_like(second, 7.0, dtype=torch.float32)]

    compiled = stator.compile(program, backend=backend)
    for _ in range(2):
        expected, given = state(), state()
        torch.manual_seed(5)
        wanted = program(expected)
        torch.manual_seed(5)
        result = compiled(given)
        assert result is given[3] and torch.equal(result, wanted)
        assert all(map(torch.equal, expected, given))
