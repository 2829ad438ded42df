"""A class that C code makes (ctypes) may name no module: its objects are adopted like any other opaque ones."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

import stator


def test_an_object_whose_class_names_no_module() -> None:
    namespace: dict[str, Any] = {"ctypes": ctypes}
    exec("def four():\n    return (ctypes.c_ubyte * 4)()", namespace)
    array = namespace["four"]()
    assert "__module__" not in vars(type(array))

    def program(x: torch.Tensor, array: Any) -> tuple[Any, torch.Tensor]:
        return len(array), x + 1

    assert stator.compile(program, backend="eager")(torch.ones(1), array)[0] == 4
