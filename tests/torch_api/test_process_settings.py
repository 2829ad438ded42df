"""Settings that are attributes of torch's modules, written inside captured code: read back, left behind, put back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.torch_api.side_by_side import World, compare


@pytest.fixture(autouse=True)
def flags_as_found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # torch's own tests, where they were imported before, forbid it.
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
    cudnn = torch.backends.cudnn
    found = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, torch.backends.fp32_precision
    yield
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, torch.backends.fp32_precision = found


def written_and_read(x: Any) -> Any:
    torch.backends.cudnn.benchmark = True
    y = x + 1
    seen = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    return y, seen, torch.backends.cudnn.benchmark


def left_behind(x: Any) -> Any:
    torch.backends.cudnn.deterministic = True
    return x + 1


def of_several_names(x: Any) -> Any:
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.fp32_precision = "ieee"
    seen = torch.backends.cudnn.allow_tf32, torch.backends.fp32_precision
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.fp32_precision = "none"
    return x + 1, seen


def refused_by_torch(x: Any) -> Any:
    try:
        torch.backends.quantized.engine = "none"
    except RuntimeError as error:
        return str(error), x + 1
    return x


def within_contexts(x: Any) -> Any:
    with torch.backends.cudnn.flags(enabled=False, benchmark=True):
        seen = torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark
        y = x + 1
    with torch.backends.mkldnn.flags(enabled=False):
        y = y @ y
    return y, seen, torch.backends.cudnn.enabled, torch.backends.mkldnn.enabled


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [written_and_read, left_behind, of_several_names, refused_by_torch, within_contexts],
                         ids=lambda function: function.__name__)
def test_flags(function: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")

    def make() -> World:
        torch.backends.cudnn.deterministic = False
        return World(function, lambda step: (torch.full((3, 3), float(step)),),
                     lambda: (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic))
    seen = compare(make, calls=3, backend=backend)
    assert sum(seen.captures[1:]) == 0
