"""Operations whose rule for fake tensors is wrong are not captured on that rule's word."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import stator


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
