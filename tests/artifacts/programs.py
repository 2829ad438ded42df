"""Programs whose entries are saved in one process and loaded in another.   name -> function or module, calls"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

import stator
from tests.comparison import call

SCALE = 3
TABLE = {"a": 2.0, "b": [1, 2]}
SENTINEL = object()


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Options:
    factor: float = 2.0
    mode: Mode = Mode.FAST


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) * 2
    return wrapper


@contextlib.contextmanager
def doubled(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x * 2


def helper(x: torch.Tensor, n: int = 2, *, shift: float = 0.5) -> torch.Tensor:
    return x * n + SCALE + shift


@twice
def decorated(x: torch.Tensor) -> torch.Tensor:
    return helper(x) - TABLE["a"]


def make_closure(weight: float, names: tuple[str, ...]) -> Callable[..., Any]:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * weight + len(names)
    return inner


closure = make_closure(1.5, ("a", "b"))


def plain(x: torch.Tensor) -> torch.Tensor:
    return helper(x).relu() + math.sqrt(4)


def keywords(x: torch.Tensor, *rest: torch.Tensor, scale: float = 1.0, **more: torch.Tensor) -> torch.Tensor:
    return sum(rest, x) * scale + sum(more.values())


def containers(x: torch.Tensor, options: Options) -> dict[str, Any]:
    pair = Pair(x + 1, x - 1)
    with doubled(pair.left) as more:
        found = {"pair": pair, "more": [more, more], "mode": options.mode}
    return found if options.mode is Mode.FAST else {}


def sentinel(x: torch.Tensor, given: object = SENTINEL) -> torch.Tensor:
    return x + 1 if given is SENTINEL else x - 1


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = helper(x)
    stator.graph_break()
    z = y * 2
    if z.sum() > 0:
        z = z + 1
    return callee_breaks(z) + 1


def callee_breaks(x: torch.Tensor) -> torch.Tensor:
    for number in range(2):
        x = x + number
        stator.graph_break()
    return x.sin()


def handled_break(x: torch.Tensor) -> torch.Tensor:
    try:
        stator.graph_break()
        x = x + 1
        raise ValueError("expected")
    except ValueError as error:
        return x * len(str(error))


def disabled(x: torch.Tensor) -> torch.Tensor:
    return native(x * 2) + 1


@stator.disable
def native(x: torch.Tensor) -> torch.Tensor:
    return x + torch.tensor(x.tolist()).sum()


def prints(x: torch.Tensor) -> torch.Tensor:
    print("size", x.shape[0])
    return x + 1


def raises(x: torch.Tensor) -> torch.Tensor:
    if x.dim() == 1:
        raise KeyError("one dimension")
    return x.cos()


def mutates(x: torch.Tensor, items: list[Any]) -> int:
    items.append(x.sum())
    x.add_(1)
    return len(items)


def sizes(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0) * x.shape[0]


def numbers(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n


def random(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x, 0.5) + torch.rand(3)


def deep_copies(x: torch.Tensor, options: Options) -> tuple[torch.Tensor, float]:
    made = copy.deepcopy(options)
    made.factor += 1
    return x * made.factor, options.factor


NUMBERS = int | float
LISTS = list[int]


def types_at_run_time(x: torch.Tensor, n: object, kinds: Any = NUMBERS) -> torch.Tensor:
    return x * 2 if isinstance(n, kinds) and kinds is NUMBERS and LISTS.__origin__ is list else x  # type: ignore[attr-defined]


def in_the_place_of_a_module(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if isinstance(torch.backends, type(torch.backends)) and torch.backends.mha.get_fastpath_enabled() \
        and torch.backends.flags_frozen() is False else x


class Layer(nn.Module):
    bias = 0.25

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("steps", torch.zeros(()))
        self.calls = 0

    @property
    def scaled(self) -> torch.Tensor:
        return self.linear.weight * self.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x) + self.scaled.sum())


class Network(nn.Module):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(4) for _ in range(depth)])
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(self.norm(x))
        return x


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.norm(x) * self.count


class Normalised(nn.Module):
    """Writes its running statistics in training, and returns a view."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.norm(self.linear(x)))
        return y, y.t()


class TrainStep(nn.Module):
    """A whole step: forward, backward and optimiser."""

    def __init__(self, optimiser: type[torch.optim.Optimizer], **settings: Any) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        self.optimiser = optimiser(self.net.parameters(), lr=0.1, **settings)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.optimiser.zero_grad()
        loss = self.net(x).square().mean()
        loss.backward()
        self.optimiser.step()
        return loss.detach()


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.linear.register_full_backward_hook(doubling)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x * 2))


def doubling(module: nn.Module, given: Any, made: Any) -> Any:
    return tuple([each * 2 for each in given])


def returned_views(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * weight
    return y.view(-1), y[0], x.t(), x


def writes_and_trains(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    total.add_(x.detach().sum())
    return x * total


def trained_sizes(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x @ weight).relu().sum(0) * x.shape[0]


def learning(*shape: int) -> torch.Tensor:
    return ones(*shape).requires_grad_()


def ones(*shape: int) -> torch.Tensor:
    return torch.arange(float(math.prod(shape))).reshape(shape) / 7 - 1


def weights_of(module: nn.Module, seed: int) -> nn.Module:
    """The module with other weights: another checkpoint of the same architecture."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


X = ones(3, 4)
PROGRAMS: dict[str, tuple[Any, list[Any]]] = {
    "plain": (plain, [call(X), call(X.double()), call(X)]),
    "decorated": (decorated, [call(X)]),
    "closure": (closure, [call(X)]),
    "keywords": (keywords, [call(X, X, scale=2.0), call(X, X, X, a=X)]),
    "containers": (containers, [call(X, Options()), call(X, Options(mode=Mode.SLOW))]),
    "sentinel": (sentinel, [call(X), call(X, 1)]),
    "breaks": (breaks, [call(X), call(-X - 9)]),
    "handled_break": (handled_break, [call(X)]),
    "disabled": (disabled, [call(X)]),
    "prints": (prints, [call(X)]),
    "raises": (raises, [call(X), call(ones(3))]),
    "mutates": (mutates, [call(X, [])]),
    "sizes": (sizes, [call(X), call(ones(5, 4)), call(ones(7, 4))]),
    "numbers": (numbers, [call(X, 2), call(X, 3), call(X, 4)]),
    "random": (random, [call(ones(2, 3))]),
    "types_at_run_time": (types_at_run_time, [call(X, 2), call(X, "a")]),
    "in_the_place_of_a_module": (in_the_place_of_a_module, [call(X)]),
    "deep_copies": (deep_copies, [call(X, Options())]),
    "network": (Network(), [call(X.clone().requires_grad_()), call((X * 2).requires_grad_())]),
    "inference": (Network().requires_grad_(False), [call(X), call(ones(5, 4)), call(ones(6, 4))]),
    "counting": (Counting(), [call(X), call(X)]),
    "method": (Network().forward, [call(X)]),
    "normalised": (Normalised(), [call(learning(3, 4)), call(learning(3, 4))]),
    "train_step": (TrainStep(torch.optim.SGD, momentum=0.9), [call(X), call(X * 2), call(X)]),
    "adam_step": (TrainStep(torch.optim.AdamW), [call(X), call(X * 2), call(X)]),
    "hooked": (Hooked(), [call(learning(3, 4))]),
    "returned_views": (returned_views, [call(learning(3, 4), learning(4)), call(X, ones(4))]),
    "writes_and_trains": (writes_and_trains, [call(learning(3, 4), torch.zeros(()))]),
    "trained_sizes": (trained_sizes, [call(ones(number, 4), learning(4, 4)) for number in (3, 5, 7)]),
}
COMPILED = ("network", "plain", "breaks", "mutates", "sizes", "random", "inference", "normalised", "train_step",
            "adam_step", "hooked", "returned_views", "writes_and_trains", "trained_sizes")  # those that a compiler has, too
