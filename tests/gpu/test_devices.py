"""Queries of devices are captured, and made again when the answer changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import stator
from tests.gpu.conftest import cuda_only


def counting(program: Callable[..., Any], **settings: Any) -> tuple[Any, list[Any]]:
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm

    return stator.compile(program, backend=backend, options={"strict": True}, **settings), graphs


def same(program: Callable[..., Any], *args: Any, graphs: int = 1, breaks: bool = False) -> None:
    expected = program(*args)
    compiled, made = counting(program, fullgraph=not breaks)
    for _ in range(2):
        result, layout = pytree.tree_flatten(compiled(*args))
        assert layout == pytree.tree_structure(expected)
        for ours, theirs in zip(result, pytree.tree_leaves(expected), strict=True):
            if isinstance(theirs, torch.Tensor):
                torch.testing.assert_close(ours, theirs)
            else:
                assert type(ours) is type(theirs) and ours == theirs
    assert len(made) == graphs


def queries(x: torch.Tensor) -> Any:
    if torch.cuda.is_available() and x.is_cuda:
        return x + torch.cuda.device_count(), x.device.type, torch.cuda.current_device(), x.get_device()
    return x + torch.cuda.device_count(), x.device.type


def test_queries(device: torch.device) -> None:
    same(queries, torch.ones(3, device=device))


@cuda_only
def test_facts_of_the_device(device: torch.device) -> None:
    def program(x: torch.Tensor) -> Any:
        major, minor = torch.cuda.get_device_capability()
        wide = torch.cuda.is_bf16_supported()
        return x * major + minor, torch.cuda.get_device_name(0), x.to(torch.bfloat16) if wide else x
    same(program, torch.ones(3, device=device))


def test_count_is_guarded(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, made = counting(lambda x: x + torch.cuda.device_count())
    x = torch.zeros(2, device=device)
    before = float(compiled(x)[0])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 41)
    assert float(compiled(x)[0]) == 41 != before
    assert len(made) == 2


def test_device_context(device: torch.device) -> None:
    def program(x: torch.Tensor) -> Any:
        with torch.device(device):
            return x + torch.ones(3), torch.arange(2)
    same(program, torch.ones(3, device=device))


def test_factories_take_the_device_of_a_tensor(device: torch.device) -> None:
    def program(x: torch.Tensor) -> Any:
        return x + torch.arange(3, device=x.device), torch.zeros_like(x), x.new_ones(2), torch.empty(0, device=device).shape
    same(program, torch.ones(3, device=device))


def test_moves_between_devices(device: torch.device) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x.cpu() + 1
        return y.to(device) * 2, y.to(x), y
    same(program, torch.ones(3, device=device))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(device: torch.device, dtype: torch.dtype) -> None:
    layer = torch.nn.Linear(8, 8, device=device)

    def program(x: torch.Tensor) -> Any:
        with torch.amp.autocast(device.type, dtype=dtype):
            y = layer(x)
            with torch.amp.autocast(device.type, enabled=False):
                z = layer(y.float())
        return y, z, torch.is_autocast_enabled(device.type)
    same(program, torch.randn(2, 8, device=device))


@cuda_only
def test_older_autocast(device: torch.device) -> None:
    def program(x: torch.Tensor) -> Any:
        with torch.cuda.amp.autocast(dtype=torch.bfloat16):
            return x @ x
    with pytest.warns(FutureWarning):
        expected = program(torch.ones(4, 4, device=device))
    compiled, _ = counting(program)
    with pytest.warns(FutureWarning):
        assert compiled(torch.ones(4, 4, device=device)).dtype is expected.dtype


@cuda_only
def test_the_current_device_as_a_context(device: torch.device) -> None:
    def program(x: torch.Tensor) -> Any:
        with torch.cuda.device(0):
            return x + torch.ones(3, device="cuda")
    same(program, torch.ones(3, device=device))


@cuda_only
def test_streams_break_and_are_right(device: torch.device) -> None:
    def program(x: torch.Tensor) -> Any:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x @ x
        torch.cuda.current_stream().wait_stream(side)
        return y + 1
    x = torch.randn(256, 256, device=device)
    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for _ in range(3):
        torch.testing.assert_close(compiled(x), program(x))


@cuda_only
def test_synchronize_breaks_and_is_done(device: torch.device) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        torch.cuda.synchronize()
        return y + 1
    x = torch.ones(3, device=device)
    torch.testing.assert_close(stator.compile(program, backend="eager")(x), program(x))


def test_random_numbers_are_those_of_eager(device: torch.device) -> None:
    def program(x: torch.Tensor) -> Any:
        return torch.nn.functional.dropout(x, 0.5), torch.rand_like(x), torch.randn(4, device=x.device)
    x = torch.ones(64, device=device)
    compiled, _ = counting(program)
    for seed in range(3):
        torch.manual_seed(seed)
        expected = program(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0)


def test_seeds_inside(device: torch.device) -> None:
    def program(x: torch.Tensor) -> Any:
        torch.manual_seed(7)
        return x + torch.rand(3, device=x.device)
    x = torch.ones(3, device=device)
    torch.testing.assert_close(stator.compile(program, backend="eager")(x), program(x), rtol=0, atol=0)


def test_tf32_is_left_as_the_program_leaves_it(device: torch.device) -> None:
    before = torch.backends.cuda.matmul.allow_tf32

    def program(x: torch.Tensor) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = not before
        y = x @ x
        torch.backends.cuda.matmul.allow_tf32 = before
        return y
    same(program, torch.ones(4, 4, device=device))
    assert torch.backends.cuda.matmul.allow_tf32 is before


def test_a_device_that_changes_is_compiled_anew(device: torch.device) -> None:
    compiled, made = counting(lambda x: x * 2 + torch.ones(2, device=x.device))
    for place in (torch.device("cpu"), device, torch.device("cpu")):
        assert compiled(torch.ones(2, device=place)).device.type == place.type
    assert len(made) == (1 if device.type == "cpu" else 2)
