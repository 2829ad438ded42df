"""Fakes of plain inputs, made directly.   a parameter, float32[64, 64]  ->  its fake, in a tenth of the time

torch's converter describes a tensor in every respect, which a dense tensor that owns the whole of its storage does
not need.  Inputs that share a storage must have fakes that share one, too: when one turns up, the trace is repeated
with the converter alone.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.utils.dlpack
from torch._subclasses.fake_tensor import FakeTensor

from stator.graph.metadata.fakes import Fakes
from stator.graph.metadata.propagation import ExactNeeded
from stator.graph.services import Recorder
from stator.source import Source

CAPSULE = type(torch.utils.dlpack.to_dlpack(torch.empty(0)))  # no input: whoever takes the tensor out empties it

class PlainInputs:
    """The storages of one trace's inputs, and which of them have a fake of their own."""

    def __init__(self, fakes: Fakes) -> None:
        self.fakes = fakes
        self.storages: dict[int, bool] = {}  # address -> whether its fake was made here
        self.made: dict[int, tuple[Any, ...]] = {}  # ids of the fakes made here, which the recorder keeps -> how

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
        return self._made_as((tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad),
                             isinstance(tensor, torch.nn.Parameter), tensor.untyped_storage().nbytes())

    def _made_as(self, layout: tuple[Any, ...], is_parameter: bool, nbytes: int) -> FakeTensor:
        with torch._C._DisableTorchDispatch():
            fake = self.fakes.make(*layout)
        if is_parameter:
            fake._is_param = True  # type: ignore[attr-defined]
        self.made[id(fake)] = layout, is_parameter, nbytes
        return fake

    def alike(self, tensor: torch.Tensor, first: FakeTensor) -> FakeTensor | None:
        """The fake of a tensor of which all that a guard compares is as it was of that behind `first`, a fake made
        here; None where the rest is not."""
        made, storage = self.made[id(first)], tensor.untyped_storage()
        address = storage.data_ptr()
        if address == 0 or storage.nbytes() != made[2] or not tensor.is_leaf or tensor._base is not None \
                or tensor.grad is not None:
            return None
        if address in self.storages:
            raise ExactNeeded
        self.storages[address] = True
        return self._made_as(*made)


def add_alike(recorder: Recorder, first: Any, tensor: torch.Tensor, source: Source, name: str) -> FakeTensor:
    """An input for a tensor of the same class and metadata as that of another input.

    `name` is the one that the graph has for the source.
    """
    fake = None
    if id(first.fake) in recorder.plain_inputs.made and not recorder.wrappers.parts:
        with torch._C.DisableTorchFunction():
            fake = recorder.plain_inputs.alike(tensor, first.fake)
    if fake is None:
        return recorder.add_input(tensor, source)  # type: ignore[no-any-return]
    node = recorder.placeholder(fake, source, name)
    recorder.tie(fake, node)
    if id(first.fake) in recorder.classes:
        recorder.classes[id(fake)] = recorder.classes[id(first.fake)]
    recorder.add_graph_input(source, tensor, fake, node)
    return fake
