"""Fakes of plain inputs, made directly.   a parameter, float32[64, 64]  ->  its fake, in a tenth of the time

torch's converter describes a tensor in every respect, which a dense tensor that owns the whole of its storage does
not need.  Inputs that share a storage must have fakes that share one, too: when one turns up, the trace is repeated
with the converter alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from stator.graph.propagation import ExactNeeded


class PlainInputs:
    """The storages of one trace's inputs, and which of them have a fake of their own."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        self.fake_mode = fake_mode
        self.storages: dict[int, bool] = {}  # address -> whether its fake was made here

    def fake(self, tensor: torch.Tensor, enabled: bool) -> Any:
        """The fake of a plain tensor; None where torch's converter has to make it (`enabled` False: always)."""
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested or tensor.is_meta:
            return None
        address = tensor.untyped_storage().data_ptr()
        if address == 0:
            return None
        plain = enabled and self._is_plain(tensor)
        known = self.storages.get(address)
        if known is not None and (known or plain):
            raise ExactNeeded
        self.storages[address] = plain
        return self._make(tensor) if plain else None

    def _is_plain(self, tensor: torch.Tensor) -> bool:
        if tensor.__dict__ or not tensor.is_leaf or tensor._base is not None or tensor.grad is not None:
            return False
        if tensor.is_conj() or tensor.is_neg() or tensor.is_inference() \
                or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return False
        size = tensor.numel() * tensor.element_size()
        return tensor.dim() > 0 and tensor.is_contiguous() and tensor.storage_offset() == 0 \
            and tensor.untyped_storage().nbytes() == size

    def _make(self, tensor: torch.Tensor) -> FakeTensor:
        with torch._C._DisableTorchDispatch():
            elem = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta",
                                       requires_grad=tensor.requires_grad)
            fake = FakeTensor(self.fake_mode, elem, tensor.device)
        if isinstance(tensor, torch.nn.Parameter):
            fake._is_param = True  # type: ignore[attr-defined]
        return fake
