"""Operations whose rule for fake tensors is wrong are not captured on that rule's word."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import stator
from tests.comparison import EXACT, call, same_as_eager


def packed(x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Size, torch.Tensor, torch.Tensor]:
    sequence = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return sequence.data.shape, sequence.batch_sizes, pad_packed_sequence(sequence, batch_first=True)[0]


def test_packed_sequences() -> None:
    compiled = stator.compile(packed, backend="eager")
    for lengths in ([4, 3, 2], [1, 4, 4], [2, 2, 2]):
        arguments = torch.randn(3, 4, 2), torch.tensor(lengths)
        (ours, ours_sizes, ours_padded), (shape, sizes, padded) = compiled(*arguments), packed(*arguments)
        assert ours == shape
        assert torch.equal(ours_sizes, sizes) and torch.equal(ours_padded, padded)


def test_recurrent_layer_over_packed_sequences() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(2, 3, batch_first=True)

    def encode(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        out, _ = layer(pack_padded_sequence(x, lengths, batch_first=True))
        return out.data.sum(0) / out.data.shape[0]

    compiled = stator.compile(encode, backend="eager")
    for lengths in ([4, 3, 2], [4, 4, 1], [3, 2, 2]):
        x = torch.randn(3, 4, 2)
        assert torch.allclose(compiled(x, torch.tensor(lengths)), encode(x, torch.tensor(lengths)))


aten = torch.ops.aten
OPERATORS = {
    "size of a sparse tensor": lambda x: aten._nnz.default((x > 0).float().to_sparse()),
    "packed sequence": lambda x: aten._pack_padded_sequence.default(x[..., None], torch.tensor([3, 1, 1]), True)[0].shape,
    "packed sequence with out=": lambda x: aten._pack_padded_sequence.out(
        x[..., None], torch.tensor([3, 1, 1]), True, out0=torch.zeros(5, 1), out1=torch.zeros(3, dtype=torch.int64)),
    "name that is a keyword": lambda x: getattr(aten.random_, "from")(x.clone(), 0, 9),
    "limit in a tensor": lambda x: aten.randint_like.Tensor_out(x, torch.tensor(9), out=torch.zeros(3, 3)),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_called_by_their_overloads(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    program = OPERATORS[name]
    x = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0], [-7.0, 8.0, 9.0]])
    torch.manual_seed(3)
    expected = program(x)
    torch.manual_seed(3)
    torch.testing.assert_close(stator.compile(program, backend=backend)(x), expected)


F = torch.nn.functional
IDLE_DROPOUTS = {
    "in evaluation": lambda x: F.dropout(x, 0.5, False),
    "of nothing": lambda x: F.dropout(input=x, p=0.0),
    "of torch": lambda x: torch.dropout(x, 0.5, train=False),
    "by overload": lambda x: aten.dropout.default(x, 0.5, False),
    "that copies": lambda x: torch.native_dropout(x, 0.5, False)[0],
    "that copies, by overload": lambda x: aten.native_dropout.default(x, 0.5, False)[0],
}  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", IDLE_DROPOUTS)
def test_dropouts_that_drop_nothing_keep_their_memory(name: str, backend: str) -> None:
    """With symbols, torch's Python rules copy where the operator does not, and the other way round."""
    def program(x: torch.Tensor) -> tuple[bool, torch.Tensor, torch.Tensor]:
        dropped = IDLE_DROPOUTS[name](x)
        same = dropped is x
        dropped.add_(1)
        return same, dropped, x.sum()

    same_as_eager(program, call(torch.ones(3, 2)), call(torch.ones(4, 2)), call(torch.ones(5, 2)), backend=backend, checks=EXACT)


UNSAFE_VIEWS = {
    "chunk": lambda x: torch.unsafe_chunk(x, 2)[0],
    "split": lambda x: x.unsafe_split(2)[1],
    "split_with_sizes": lambda x: aten.unsafe_split_with_sizes.default(x, [1, 3])[1],
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", UNSAFE_VIEWS)
def test_writes_to_views_whose_schema_denies_it(name: str, backend: str) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        UNSAFE_VIEWS[name](x).add_(1)
        return x.sum(), x * 2

    x = torch.arange(4.0)
    expected, given = program(x.clone()), x.clone()
    actual = stator.compile(program, backend=backend)(given)
    assert all(map(torch.equal, actual, expected)) and given.sum() == expected[0]
