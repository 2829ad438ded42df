"""Run a program of several calls twice, eagerly and compiled, each side on a world of its own.

In: a factory of worlds (the function, its arguments for each call, what to look at afterwards).
Out: an AssertionError that names the differences (tests/comparison), or what Stator reported: captures, breaks.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests import comparison
from tests.comparison import Checks, Report, Surroundings, compare_worlds, require_same, stator_compiler
from tests.comparison.call_outcome import seed_streams


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


class Watching(TorchDispatchMode):
    """Notes each operator that it is asked about, and lets it be."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Register(list[Make]):
    """Factories of worlds; it is the decorator that adds one."""

    def __call__(self, make: Make) -> Make:
        self.append(make)
        return make


def compare(make: Callable[[], World], calls: int = 4, backend: Any = "eager", tolerance: float = 0.0,
            streams: bool = True) -> Report:
    checks = Checks((tolerance, tolerance) if tolerance else 0.0, strides="all" if backend == "eager" else "none", warnings="none", gradients="none",
                    streams=streams, seed=None)
    return require_same(compare_worlds(lambda: side(make, calls), stator_compiler(backend, strict=False), checks=checks))


def side(make: Callable[[], World], calls: int) -> comparison.World:
    seed_streams(0)
    world = make()
    function = world.function
    file = function.__code__.co_filename if isinstance(function, types.FunctionType) else ""
    inputs = [lambda number=number: (world.arguments(number), {}) for number in range(calls)]
    return comparison.World(function, inputs, Surroundings(function.__module__, file, world.look))
