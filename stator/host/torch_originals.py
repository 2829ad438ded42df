"""Torch's own classes and modules as they were when Stator was imported.   "torch.Tensor"  ->  a copy of its namespace

Programs patch torch before they first use Stator; the rest of Stator is loaded then. In: torch, where it is loaded.
Out: (owner, namespace, copy) of everything that Stator and torch's compilers use by name.
"""

from __future__ import annotations

import operator
import os
import sys
import types
from collections.abc import Mapping
from typing import Any

from stator.host.value_kinds import dict_of_class

_OWNERS = ("Tensor", "nn.Parameter", "nn.Module", "no_grad", "enable_grad", "set_grad_enabled", "inference_mode",
           "", "nn.functional", "functional", "linalg", "_C._nn", "cuda", "overrides", "autograd",
           "utils._pytree")
Originals = list[tuple[Any, Mapping[str, Any], dict[str, Any]]]
_taken: Originals = []


def take() -> Originals:
    """The copies, made at the first call."""
    if not _taken:
        torch = sys.modules["torch"]
        for path in _OWNERS:
            owner = operator.attrgetter(path)(torch) if path else torch
            namespace = dict_of_class(owner) if isinstance(owner, type) else vars(owner)
            _taken.append((owner, namespace, dict(namespace)))
        _drop_foreign(torch)
    return _taken


def _drop_foreign(torch: Any) -> None:
    """A C function that was replaced before is found behind its replacement."""
    own_files = (os.path.dirname(torch.__file__), "<")  # "<": code that torch generates
    for owner, _, entries in _taken:
        for name, value in list(entries.items()):
            if type(value) is not types.FunctionType or value.__code__.co_filename.startswith(own_files):
                continue
            if owner is torch.Tensor:
                del entries[name]  # TensorBase may have it
            elif owner is torch and (behind := getattr(torch._C._VariableFunctions, name, None)) is not None:
                entries[name] = behind


if "torch" in sys.modules and all(hasattr(sys.modules["torch"], name) for name in ("nn", "cuda", "compile")):
    take()
