"""Fakes with given metadata.   float32[64, 64] on the CPU  ->  a FakeTensor, in a third of its constructor's time

The constructor checks its arguments and gives each fake the same twenty attributes, one by one.  The first fake of a
device is made by it; those that follow take its attributes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConfig, FakeTensorMode


class Fakes:
    """The fakes of one trace."""

    __slots__ = ("fake_mode", "_states")

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        self.fake_mode = fake_mode
        self._states: dict[torch.device, tuple[torch.device, dict[str, Any]]] = {}

    def make(self, size: object, stride: object, dtype: torch.dtype, device: torch.device,
             requires_grad: bool) -> FakeTensor:
        """A dense leaf; dispatch to modes and torch functions must be off."""
        elem = torch.empty_strided(size, stride, dtype=dtype, device="meta", requires_grad=requires_grad)
        known = self._states.get(device)
        if known is None:
            fake = FakeTensor(self.fake_mode, elem, device)
            if not FakeTensorConfig.debug:
                self._states[device] = fake.fake_device, dict(fake.__dict__)
            return fake
        exact, state = known
        fake = torch.Tensor._make_subclass(  # type: ignore[call-arg]
            FakeTensor, elem, requires_grad, dispatch_device=True, device_for_backend_keys=exact)
        if self.fake_mode._allow_unsafe_data_ptr_access:
            torch._C._set_warn_deprecated_on_mutable_data_ptr(fake)
        else:
            torch._C._set_throw_on_mutable_data_ptr(fake)
        fake.__dict__ = state.copy()
        return fake
