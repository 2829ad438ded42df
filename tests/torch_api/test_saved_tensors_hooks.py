"""Hooks on saved tensors around a compiled call: they see what eager shows them, and nothing of the trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator


def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * y + x.sin() * y


def seen(function: Any) -> list[Any]:
    log: list[Any] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        log.append(("pack", type(tensor), tuple(tensor.shape)))
        return tensor

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        log.append("unpack")
        return tensor

    x, y = torch.ones(4, requires_grad=True), torch.full((4,), 2.0)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        function(x, y).sum().backward()
    return [*log, x.grad]


def test_the_same_calls_as_in_eager() -> None:
    compiled = stator.compile(forward, backend="eager")
    expected = seen(forward)
    for _ in range(2):
        found = seen(compiled)
        assert found[:-1] == expected[:-1] and torch.equal(found[-1], expected[-1])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_no_fake_reaches_them(backend: str) -> None:
    compiled = stator.compile(forward, backend=backend)
    first, second = seen(compiled), seen(compiled)
    assert first[:-1] == second[:-1] and torch.equal(first[-1], second[-1])
    assert {call[1] for call in first[:-1] if call != "unpack"} == {torch.Tensor}


def test_older_questions_about_autocast() -> None:
    def asked(x: torch.Tensor) -> torch.Tensor:
        on = torch.is_autocast_cpu_enabled()
        size = torch.get_autocast_cpu_dtype().itemsize + torch.get_autocast_gpu_dtype().itemsize
        return x + on * 10 + size + torch._C._are_functorch_transforms_active()

    compiled = stator.compile(asked, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for enabled in (False, True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            assert torch.equal(compiled(x), asked(x))
