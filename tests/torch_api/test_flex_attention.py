"""flex_attention, captured whole: its score and mask functions become graphs of their own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import stator

LENGTH = 128
BIAS, TABLE = torch.linspace(-1, 1, LENGTH), torch.linspace(0, 2, 2 * LENGTH).reshape(2, LENGTH)
CAUSAL = create_block_mask(lambda b, h, i, j: i >= j, None, None, LENGTH, LENGTH, device="cpu")


def plain(q: Any, k: Any, v: Any, slope: Any) -> Any:
    return flex_attention(q, k, v)


def scores(q: Any, k: Any, v: Any, slope: Any) -> Any:
    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + BIAS[j] - (i - j).abs() * slope)


def tables(q: Any, k: Any, v: Any, slope: Any) -> Any:
    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score * TABLE[h, j] + BIAS[i])


def masks(q: Any, k: Any, v: Any, slope: Any) -> Any:
    return flex_attention(q * 2, k, v, block_mask=CAUSAL) + 1


def mask_made_inside(q: Any, k: Any, v: Any, slope: Any) -> Any:
    pages = torch.arange(LENGTH) // 32

    def same_page(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (pages[i] == pages[j]) & (i >= j)
    return flex_attention(q, k, v, block_mask=create_block_mask(same_page, None, None, LENGTH, LENGTH, device="cpu"))


def scale_and_statistics(q: Any, k: Any, v: Any, slope: Any) -> Any:
    out, statistics = flex_attention(q, k, v, scale=0.3, return_lse=True)
    return out * statistics[..., None]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """torch warns that eager's own way is slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def inputs(seed: int) -> tuple[Any, ...]:
    torch.manual_seed(seed)
    return (*(torch.randn(1, 2, LENGTH, 16) for _ in range(3)), torch.tensor(0.1 * (seed + 1)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [plain, scores, tables, masks, mask_made_inside, scale_and_statistics])
def test_equal_to_eager(program: Any, backend: str) -> None:
    compiled = stator.compile(program, backend=backend, fullgraph=True)
    for seed in range(3):
        torch.testing.assert_close(compiled(*inputs(seed)), program(*inputs(seed)))


def test_what_a_function_takes_from_outside_is_a_fact() -> None:
    factor = 2.0

    def program(q: Any) -> Any:
        return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score * factor)

    compiled, q = stator.compile(program, backend="eager", fullgraph=True), inputs(0)[0]
    torch.testing.assert_close(compiled(q), program(q))
    factor = 0.5
    torch.testing.assert_close(compiled(q), program(q))


def test_a_function_with_effects_breaks() -> None:
    calls = []

    def program(q: Any) -> Any:
        def score_mod(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            calls.append(1)
            return score

        return flex_attention(q, q, q, score_mod=score_mod)

    with pytest.raises(stator.Unsupported, match="effects"):
        stator.compile(program, backend="eager", fullgraph=True)(inputs(0)[0])


SQUARE = torch.arange(16.0).reshape(4, 4)


@pytest.mark.parametrize("score", [
    lambda s, b, h, q, k: s + SQUARE[q, k], lambda s, b, h, q, k: s + SQUARE[q, 0],
    lambda s, b, h, q, k: s + SQUARE[-1, k], lambda s, b, h, q, k: s + SQUARE[q][k],
])
def test_positions_and_numbers_as_indexes(score: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return flex_attention(x, x, x, score_mod=score)

    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    for step in range(2):
        x = torch.arange(16.0).reshape(1, 1, 4, 4) * 0.1 + step
        torch.testing.assert_close(compiled(x), program(x))


def test_a_slice_beside_a_position_breaks() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return flex_attention(x, x, x, score_mod=lambda s, b, h, q, k: s + SQUARE[q, :][k])

    with pytest.raises(stator.Unsupported, match="SB003"):
        stator.compile(program, backend="eager", fullgraph=True)(torch.ones(1, 1, 4, 4))
