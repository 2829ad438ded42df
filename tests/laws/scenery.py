"""Parts of scenes: holders of attributes, functions with globals of their own, arguments."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import nn


class Thing:
    """A holder of attributes."""


def box(**attributes: Any) -> Any:
    thing = Thing()
    vars(thing).update(attributes)
    return thing


def one(x: torch.Tensor) -> Any:
    return lambda: (x,)


def namespace_function(body: str, **names: Any) -> tuple[types.FunctionType, dict[str, Any]]:
    """A function with globals of its own."""
    names = {"torch": torch, "__name__": __name__, "__builtins__": __builtins__, **names}
    exec(compile(body, __file__, "exec"), names)
    return names["fn"], names


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 4)
