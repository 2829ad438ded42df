"""A dozen models and programs whose every reachable fact shows in the result.

In: a seed.  Out: `Subject`s: a callable without effects, its arguments, and the roots from which its facts are reached.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

THIS = sys.modules[__name__]

FACTOR = 1.5
TABLE: dict[str, Any] = {"gain": 2.0, "names": ["gain"], "nested": {"shift": 1}}
ORDER = [3, 1, 2]


@dataclasses.dataclass
class Subject:
    name: str
    run: Callable[..., Any]
    args: tuple[Any, ...]
    roots: tuple[Any, ...]


def scaled(x: torch.Tensor, by: float = 2.0, *, shift: int = 1) -> torch.Tensor:
    return x * by * FACTOR + shift


class Scale(nn.Module):
    gain = 1.25

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, size))
        self.register_buffer("offset", torch.full((size,), 0.25))
        self.power = 2
        self.label = "on"
        self.extra: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.weight * self.gain + self.offset
        if self.label == "on":
            x = x + self.power
        return x if self.extra is None else x * 3


class Louder(Scale):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 10


class Tower(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Scale(4) for _ in range(depth))
        self.head = nn.Linear(4, 3)
        self.steps = [1, 2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x) + number
        for step in self.steps:
            x = x * step
        return self.head(x)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"one": nn.Linear(4, 4), "two": Scale(4)})
        self.order = ("one", "two")
        self.drop = nn.Dropout(0.0)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        out = {}
        for name in self.order:
            x = self.parts[name](x)
            out[name] = x
        out["norm"] = self.norm(self.drop(x)) * (1 if self.training else 2)
        return out


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8, bias=False)
        self.heads = 2
        self.scale = 0.5

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        parts = [t.view(*t.shape[:-1], self.heads, -1).transpose(-2, -3) for t in (q, k, v)]
        weights = torch.softmax(parts[0] @ parts[1].transpose(-1, -2) * self.scale, dim=-1)
        mixed = (weights @ parts[2]).transpose(-2, -3).reshape(x.shape)
        return self.out(mixed), weights


class Settings:
    __slots__ = ("rate", "mode", "items")

    def __init__(self) -> None:
        self.rate, self.mode, self.items = 0.5, "sum", [1.0, 2.0]


class Node:
    kind = "plain"

    def __init__(self, value: int, child: Node | None = None) -> None:
        self.value, self.child = value, child

    def total(self) -> int:
        return self.value + (self.child.total() if self.child is not None else 0)

    @property
    def doubled(self) -> int:
        return self.value * 2


class Heavy(Node):
    def total(self) -> int:
        return super().total() * 7


@dataclasses.dataclass
class Result:
    value: torch.Tensor
    note: str


def reads_globals(x: torch.Tensor) -> torch.Tensor:
    out = scaled(x) * TABLE["gain"] + TABLE["nested"]["shift"]
    for name in TABLE["names"]:
        out = out + len(name)
    for number in ORDER:
        out = out * number
    return out


def make_closure() -> tuple[Callable[..., Any], Any]:
    width, table, node = 3, {"a": 1, "b": 2}, Node(1, Node(2))

    def inner(x: torch.Tensor, twice: bool = True) -> Result:
        for key, number in table.items():
            x = x + number * len(key)
        return Result(x * width * node.total() * (2 if twice else 1), node.kind)

    return inner, (inner, node, table, Node, Heavy)


def walks_objects(x: torch.Tensor, node: Node, settings: Settings) -> torch.Tensor:
    out = x * node.total() + node.doubled
    out = out * settings.rate
    for item in settings.items:
        out = out + item
    return out.sum() if settings.mode == "sum" else out.mean()


def takes_structures(xs: list[torch.Tensor], options: dict[str, Any], flags: tuple[Any, ...]) -> torch.Tensor:
    out = sum(xs[1:], xs[0])
    for key, value in options.items():
        out = out * len(key) + value
    return out * len(flags) if flags[0] else out


def ordered_tables(x: torch.Tensor, table: OrderedDict[str, int], names: set[str]) -> torch.Tensor:
    for place, (key, value) in enumerate(table.items()):
        x = x * (place + 1) + value + len(key)
    return x * len(names) if "a" in names else x


def asks_torch(x: torch.Tensor) -> torch.Tensor:
    made = torch.ones(3) * 2
    out = x.sum() * made
    return out * 2 if torch.is_grad_enabled() else out


def compares_tensors(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = x * 2 if x.dtype == y.dtype else x * 3
    if x is y:
        out = out + 100
    return out + x.ndim + x.stride(0) + (5 if x.requires_grad else 0)


def subjects(seed: int) -> list[Subject]:
    """Fresh objects, so that a change to one subject is not seen by another; globals are put back by the caller."""
    torch.manual_seed(seed)
    classes = (Scale, Louder, Tower, nn.Linear)
    tower, gated, attention, scale = Tower(3), Gated(), Attention(), Scale(4)
    sequence = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Scale(4), nn.Tanh())
    closure, closure_roots = make_closure()
    node, settings = Node(1, Node(2, Node(3))), Settings()
    xs, options = [torch.ones(3), torch.ones(3) * 2], {"rate": 2, "bias": 3.0}
    table = OrderedDict(a=1, bb=2, ccc=3)
    names = {"a", "b"}
    x4, x8, x3 = torch.randn(2, 4), torch.randn(2, 3, 8), torch.randn(3)
    world = (vars(THIS), scaled, reads_globals)
    return [
        Subject("scale", scale, (x4,), (scale, *classes)),
        Subject("tower", tower, (x4,), (tower, *classes)),
        Subject("sequence", sequence, (x4,), (sequence, *classes)),
        Subject("gated", gated, (x4,), (gated, *classes, Gated)),
        Subject("attention", attention, (x8,), (attention, Attention, nn.Linear)),
        Subject("method", scale.forward, (x4,), (scale, *classes)),
        Subject("globals", reads_globals, (x3,), world),
        Subject("closure", closure, (x3,), closure_roots),
        Subject("objects", walks_objects, (x3, node, settings), (node, settings, Node, Heavy, walks_objects)),
        Subject("structures", takes_structures, (xs, options, (1, 2)), (xs, options)),
        Subject("ordered", ordered_tables, (x3, table, names), (table, names)),
        Subject("torch", asks_torch, (x3,), ()),
        Subject("tensors", compares_tensors, (x4, torch.randn(2, 4)), ()),
    ]
