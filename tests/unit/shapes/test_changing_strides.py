"""A stride that changes while no size does becomes a symbol, and is guarded as one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import torch

import stator
from tests.unit.shapes.counting import run, shape_texts


def windows(widths: Iterable[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(4, width)[:, :3], torch.randn(4, 3)) for width in widths]


def used(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x * y, x.stride(0) + 1, x.is_contiguous(), x.reshape(-1)


def test_two_compiles() -> None:
    compiles, compiled = run(used, windows((5, 6, 7, 8, 9, 11)))
    assert compiles == 2
    assert any("x.stride(0)" in text for text in shape_texts(compiled))


def test_a_contiguous_one_is_not_taken_for_another() -> None:
    compiles, _ = run(used, windows((5, 6, 7, 3, 8, 3, 4)))
    assert compiles <= 3


def test_a_column_of_changing_width() -> None:
    compiles, _ = run(lambda x: x * 2, [(torch.randn(4, width)[:, 0:1],) for width in (1, 2, 3, 4, 5)])
    assert compiles == 2


def test_constants_where_the_user_wants_them() -> None:
    compiles, _ = run(used, windows((5, 6, 7)), dynamic=False)
    assert compiles == 3


def test_sizes_and_strides_together() -> None:
    calls = [(torch.randn(4 + n, 3 + n)[:, : 2 + n], torch.randn(4 + n, 1)) for n in (2, 5, 9, 4, 7)]
    compiles, _ = run(lambda x, y: (x * y, x.stride(0) + 1), calls)
    assert compiles <= 3


def test_a_profile_knows_it() -> None:
    run(used, windows((5, 6, 7)))
    text = stator.shape_profile()
    assert any(known["strides"] for known in json.loads(text)["places"].values())


def test_a_mark_on_a_size_of_one_is_no_error() -> None:
    x = torch.randn(1, 3)
    stator.mark_dynamic(x, 0)
    assert torch.equal(stator.compile(lambda x: x * 2, backend="eager")(x), x * 2)
