"""Compilers that use the device: Inductor's modes and options, CUDA graphs that copy no parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import stator
from tests.gpu.conftest import cuda_only


def model(device: torch.device) -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.LayerNorm(32)).to(device)


SETTINGS: dict[str, dict[str, Any]] = {
    "eager": {"backend": "eager"}, "aot_eager": {"backend": "aot_eager"}, "cudagraphs": {"backend": "cudagraphs"},
    "inductor": {}, "reduce-overhead": {"mode": "reduce-overhead"},
    "no-cudagraphs": {"mode": "max-autotune-no-cudagraphs"},
    "options": {"options": {"triton.cudagraphs": True, "epilogue_fusion": True}},
}


def on_device(names: Any) -> list[Any]:
    """Inductor's compilations of the CPU are slow, and other tests have them."""
    return [pytest.param(name, marks=() if "backend" in SETTINGS[name] else cuda_only) for name in names]


@pytest.mark.parametrize("name", on_device(SETTINGS))
def test_inference(device: torch.device, name: str) -> None:
    module = model(device).eval()
    compiled = stator.compile(module, **SETTINGS[name])
    with torch.no_grad():
        for _ in range(6):  # CUDA graphs are recorded on the second call and replayed from the third
            x = torch.randn(8, 32, device=device)
            torch.testing.assert_close(compiled(x).clone(), module(x), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", on_device(["eager", "aot_eager", "inductor", "reduce-overhead", "cudagraphs"]))
def test_training(device: torch.device, name: str) -> None:
    losses: dict[str, list[float]] = {}
    x, y = torch.randn(16, 32, device=device), torch.randn(16, 32, device=device)
    for side in ("plain", "compiled"):
        torch.manual_seed(1)
        module = model(device)
        target = module if side == "plain" else stator.compile(module, **SETTINGS[name])
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
        losses[side] = []
        for _ in range(6):
            loss = nn.functional.mse_loss(target(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[side].append(float(loss.detach()))
    torch.testing.assert_close(losses["compiled"], losses["plain"], rtol=2e-3, atol=2e-3)


def test_grad_scaler(device: torch.device) -> None:
    if device.type == "cpu":
        pytest.skip("float16 gradients are scaled on GPUs")
    losses: dict[str, list[float]] = {}
    x, y = torch.randn(16, 32, device=device), torch.randn(16, 32, device=device)
    for side in ("plain", "compiled"):
        torch.manual_seed(1)
        module = model(device)

        def forward(x: torch.Tensor, y: torch.Tensor, module: nn.Module = module) -> torch.Tensor:
            with torch.amp.autocast("cuda", dtype=torch.float16):
                return nn.functional.mse_loss(module(x), y)

        target = forward if side == "plain" else stator.compile(forward)
        optimizer, scaler = torch.optim.SGD(module.parameters(), lr=1e-2), torch.amp.GradScaler("cuda")
        losses[side] = []
        for _ in range(5):
            loss = target(x, y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses[side].append(float(loss.detach()))
    torch.testing.assert_close(losses["compiled"], losses["plain"], rtol=1e-2, atol=1e-2)


@cuda_only
def test_cuda_graphs_are_recorded_once_and_replayed(device: torch.device) -> None:
    """As often as torch.compile records them, and no more with more calls."""
    from torch._inductor import cudagraph_trees

    def roots() -> list[Any]:
        manager = cudagraph_trees.get_container(0).tree_manager
        return [] if manager is None else [node for nodes in manager.roots.values() for node in nodes]

    def recorded_by(compiler: Any, calls: int) -> tuple[int, int]:
        compiled = compiler(model(device).eval(), mode="reduce-overhead")
        x = torch.randn(8, 32, device=device)
        before = roots()  # of others: the manager is the process's
        with torch.no_grad():
            for _ in range(calls):
                compiled(x)
        mine = [node for node in roots() if node not in before]
        return len(mine), sum(len(list(node.children)) for node in mine)

    expected = recorded_by(torch.compile, 6)
    assert expected[0] == 1
    assert recorded_by(stator.compile, 6) == recorded_by(stator.compile, 12) == expected


@cuda_only
def test_cuda_graphs_copy_no_parameters(device: torch.device) -> None:
    from torch._inductor import cudagraph_trees

    module = model(device).eval()
    compiled = stator.compile(module, mode="reduce-overhead")
    x = torch.randn(8, 32, device=device)
    with torch.no_grad():
        for _ in range(4):
            compiled(x)
    manager = cudagraph_trees.get_container(0).tree_manager
    assert manager is not None
    newest = max((node for nodes in manager.roots.values() for node in nodes), key=lambda node: node.id.id)
    assert len(newest.non_static_input_idx) == 1  # x alone


@cuda_only
def test_cuda_graphs_across_a_break(device: torch.device) -> None:
    module = model(device).eval()

    def program(x: torch.Tensor) -> torch.Tensor:
        y = module(x)
        torch.cuda.synchronize()
        return y + module(y)

    compiled = stator.compile(program, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(8, 32, device=device)
            torch.testing.assert_close(compiled(x).clone(), program(x), rtol=2e-3, atol=2e-3)


@cuda_only
def test_a_cache_updated_in_place(device: torch.device) -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(16, 32))

        def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
            self.seen.index_copy_(0, place, x)
            return self.seen.sum(0)

    for settings in ({}, {"mode": "reduce-overhead"}):
        plain, other = Cached().to(device), Cached().to(device)
        compiled = stator.compile(other, **settings)
        with torch.no_grad():
            for number in range(6):
                x, place = torch.randn(1, 32, device=device), torch.tensor([number], device=device)
                torch.testing.assert_close(compiled(x, place).clone(), plain(x, place))
        torch.testing.assert_close(other.seen, plain.seen)
