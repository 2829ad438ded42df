"""Checkpoints around compiled modules: their second run ends inside a compiled graph, by an exception of a hook."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import stator

T = torch.Tensor


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STATOR_STRICT", "1")
    yield


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)

    def forward(self, x: T) -> T:
        return x + self.last(self.norm(self.first(x)).sin())  # type: ignore[no-any-return]


def steps(block: nn.Module, run: Callable[[nn.Module, T], T]) -> list[T]:
    found: list[T] = []
    for step in range(3):
        x = (torch.arange(8.0).reshape(2, 4) + step).requires_grad_()
        block.zero_grad()
        result = run(block, x)
        result.sum().backward()
        assert x.grad is not None
        found += [result.detach(), x.grad, *[each.grad.clone() for each in block.parameters() if each.grad is not None]]
        found += [each.clone() for each in block.buffers()]
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("names", [["last"], ["first", "norm", "last"]], ids=["the last one", "all"])
def test_modules_under_a_checkpoint(names: list[str], backend: str) -> None:
    block = Block()
    for name in names:
        setattr(block, name, stator.compile(getattr(block, name), backend=backend))

    def run(module: nn.Module, x: T) -> T:
        return checkpoint(module, x, use_reentrant=False)  # type: ignore[no-any-return]

    torch.testing.assert_close(steps(block, run), steps(Block(), run))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_whole_block_under_a_checkpoint(backend: str) -> None:
    compiled = stator.compile(Block(), backend=backend)

    def run(module: nn.Module, x: T) -> T:
        return checkpoint(module, x, use_reentrant=False)  # type: ignore[no-any-return]

    torch.testing.assert_close(steps(compiled, run), steps(Block(), run))
