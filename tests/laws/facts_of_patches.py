"""Probes: torch patched between calls, its own functions called past a patch, patches that the capture must not run."""

from __future__ import annotations

from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import one

_relu, _add, _len = torch.Tensor.relu, torch.Tensor.__add__, torch.Tensor.__len__


def _set(name: str, value: Any) -> Any:
    return lambda: setattr(torch.Tensor, name, value)


def _delete(name: str) -> Any:
    return lambda: name in vars(torch.Tensor) and delattr(torch.Tensor, name)


@probe()
def operator_of_tensors_patched():
    return Scene(lambda x: x + 1, one(ramp()), _set("__add__", lambda self, other: _add(self, other) * 10),
                 undo=_delete("__add__"))


@probe()
def length_of_tensors_patched():
    return Scene(lambda x: x * len(x), one(ramp()), _set("__len__", lambda self: 7), undo=_set("__len__", _len))


@probe()
def original_called_past_a_later_patch():
    return Scene(lambda x: _relu(x) + 1, one(ramp()), _set("relu", lambda self: _relu(self) * 10),
                 undo=_delete("relu"))


@probe()
def original_called_in_its_patch():
    return Scene(lambda x: x.relu() + 1, one(ramp()), _set("relu", lambda self: _relu(self) * 10),
                 undo=_delete("relu"))


@probe()
def patch_that_counts_what_a_capture_would_call():
    calls: list[int] = []
    dim = torch.Tensor.dim

    def counted(self):
        calls.append(1)
        return dim(self)

    return Scene(lambda x: x + x.dim(), one(ramp()), _set("dim", counted), lambda: list(calls),
                 undo=_delete("dim"))
