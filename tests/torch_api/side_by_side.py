"""Run a program of several calls twice, eagerly and compiled, each side on a world of its own.

In: a factory of worlds (the function, its arguments for each call, what to look at afterwards).
Out: an AssertionError that names the first difference, or what Stator reported: captures, recompiles, breaks.

Looked at after each call: the value or the exception, the arguments, what the world shows, gradients, and the random
streams of torch, Python and numpy.
"""

from __future__ import annotations

import dataclasses
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch.overrides import TorchFunctionMode

import stator
from stator import events


@dataclasses.dataclass
class World:
    """One side: `arguments(i)` are those of call number i, `look()` what is compared beside the value."""

    function: Callable[..., Any]
    arguments: Callable[[int], tuple[Any, ...]]
    look: Callable[[], Any] = lambda: None


Make = Callable[[], World]


class Counting(TorchFunctionMode):
    """Notes the name of each operation that it is asked about, and lets it be."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Register(list[Make]):
    """Factories of worlds; it is the decorator that adds one."""

    def __call__(self, make: Make) -> Make:
        self.append(make)
        return make


@dataclasses.dataclass
class Seen:
    """What the compiled side reported."""

    captures: list[int]  # how many graphs or residuals each call made
    codes: list[str]  # of graph breaks
    causes: list[str]
    fallbacks: list[str]


def compare(make: Callable[[], World], calls: int = 4, backend: Any = "eager", tolerance: float = 0.0,
            streams: bool = True) -> Seen:
    expected = run(make, calls, None)[0]
    found, seen = run(make, calls, backend)
    for number, (left, right) in enumerate(zip(expected, found, strict=True)):
        if not streams:
            left, right = left[:-1], right[:-1]
        said = difference(left, right, tolerance)
        assert not said, f"call {number + 1}: {said}"
    return seen


def run(make: Callable[[], World], calls: int, backend: Any) -> tuple[list[Any], Seen]:
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    world = make()
    function = world.function if backend is None else stator.compile(world.function, backend=backend)
    left, captures = [], []
    with events.record() as log, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(calls):
            before = len(log)
            arguments = world.arguments(number)
            try:
                value: Any = function(*arguments)
            except (stator.InternalError, stator.BackendError):
                raise
            except Exception as error:
                value = f"{type(error).__name__}: {error}"
            state = (torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist())
            left.append(portrait([value, arguments, world.look(), state]))
            captures.append(sum(isinstance(event, events.CaptureFinished) for event in log[before:]))
    breaks = [event for event in log if isinstance(event, events.GraphBreak)]
    fallbacks = [event.why for event in log if isinstance(event, events.EagerFallback)]
    return left, Seen(captures, [b.code for b in breaks], [b.cause for b in breaks], fallbacks)


def portrait(value: Any) -> Any:
    """A value as plain data, tensors copied."""
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            grad = portrait(value.grad) if value.is_leaf else None
            return type(value).__name__, value.detach().clone(), value.requires_grad, value.is_leaf, grad
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [portrait(item) for item in value]
    if isinstance(value, dict):
        return type(value).__name__, [(key if isinstance(key, str) else "", portrait(v)) for key, v in value.items()]
    if isinstance(value, numpy.ndarray):
        return "array", str(value.dtype), value.tolist()
    if isinstance(value, torch.nn.Module):
        return portrait(dict(value.state_dict()))
    return value if isinstance(value, (int, float, complex, str, bool, type(None))) else type(value).__name__


def difference(expected: Any, found: Any, tolerance: float, where: str = "") -> str:
    if type(expected) is not type(found):
        return f"{where}: {found!r}, eager {expected!r}"
    if isinstance(expected, (list, tuple)):
        if len(expected) != len(found):
            return f"{where}: {found!r}, eager {expected!r}"
        parts = enumerate(zip(expected, found, strict=True))
        return next((said for i, (a, b) in parts if (said := difference(a, b, tolerance, f"{where}.{i}"))), "")
    if isinstance(expected, torch.Tensor):
        try:
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        except AssertionError as error:
            return f"{where}: {error}"
        return ""
    return "" if expected == found or (expected != expected and found != found) else f"{where}: {found!r}, eager {expected!r}"
