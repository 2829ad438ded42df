"""The language curriculum: how a case is declared, and how it runs in a world of its own.

In:  `tests/lang/test_NN_topic.py`, ordinary Python with functions under `@case(...)`.
Out: `Case` records for pytest, and `run_case`, which loads the topic file once per side, so that its
classes, globals and closures are never shared between the eager and the compiled run.

The cases are the programs under test, so they are written as users write: without annotations, and with
constructs that a linter would rather not see.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.comparison import (
    Call,
    GraphCounter,
    Inputs,
    Report,
    Surroundings,
    World,
    call,
    compare_worlds,
    identity_mode,
    require_same,
    stator_compiler,
)

REGISTRY = "__cases__"
OTHER_WORLDLY = (types.ModuleType, types.BuiltinFunctionType)


@dataclass(frozen=True)
class Case:
    """One program of the curriculum. `graphs`: expected from the first call; `breaks`: why it cannot be whole."""

    name: str
    fn: Callable[..., Any]
    calls: tuple[Inputs, ...]
    graphs: int
    breaks: str | None


def ramp(*shape: int, start: float = -1.0, step: float = 0.5) -> torch.Tensor:
    """Distinct small numbers, exact in binary: start, start + step, ..."""
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count, dtype=torch.float32) * step + start).reshape(shape)


def default_calls(fn: Callable[..., Any]) -> tuple[Inputs, ...]:
    """A tensor for each parameter without a default: two sets of values, then another shape."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [p for p in inspect.signature(fn).parameters.values() if p.kind in kinds and p.default is p.empty]
    count = len(named)
    if not count:
        return (call(),)
    return (
        Call(tuple(ramp(2, 3, start=-1.0 + i) for i in range(count)), {}),
        Call(tuple(ramp(2, 3, start=2.0 - i, step=0.25) for i in range(count)), {}),
        Call(tuple(ramp(4, 3, start=0.5 * i) for i in range(count)), {}),
    )


def case(*calls: Inputs, graphs: int = 1, breaks: str | None = None) -> Callable[[Callable[..., Any]], Any]:
    """Register a function as a case; without `calls`, its parameters are tensors."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        registry: dict[str, Case] = fn.__globals__.setdefault(REGISTRY, {})
        if fn.__name__ in registry:
            raise ValueError(f"two cases named {fn.__name__}")
        registry[fn.__name__] = Case(fn.__name__, fn, calls or default_calls(fn), graphs, breaks)
        return fn

    return register


@functools.lru_cache(maxsize=4)
def topic_code(path: Path) -> types.CodeType:
    return compile(path.read_text(), str(path), "exec", dont_inherit=True)


def load_topic(path: Path, code: types.CodeType | None = None) -> types.ModuleType:
    """A new module object from a topic file; each call gives classes and globals of its own."""
    module = types.ModuleType("topic_" + path.stem.removeprefix("test_"))
    module.__file__ = str(path)
    # Classes look their module up by name (dataclasses, typing); the latest world answers.
    sys.modules[module.__name__] = module
    exec(code or topic_code(path), module.__dict__)
    return module


def cases_of(module: types.ModuleType) -> dict[str, Case]:
    return module.__dict__.get(REGISTRY, {})


def world_of_case(path: Path, name: str) -> World:
    return world_in(load_topic(path), name)


def world_in(module: types.ModuleType, name: str, left_out: tuple[str, ...] = ()) -> World:
    """A case with the globals of its module as the state that is compared."""
    chosen = cases_of(module)[name]

    def state() -> dict[str, Any]:
        return {
            key: value
            for key, value in module.__dict__.items()
            if not key.startswith("__") and key not in left_out and not isinstance(value, OTHER_WORLDLY) and value is not case
        }

    return World(chosen.fn, (chosen.calls[0], *chosen.calls), Surroundings(module.__name__, str(module.__file__), state))


def run_case(path: Path, chosen: Case) -> Report:
    """Compare one case with eager; whole unless it says that it breaks."""
    whole = chosen.breaks is None
    counter = GraphCounter("eager")
    report = compare_worlds(lambda: world_of_case(path, chosen.name), stator_compiler(counter, fullgraph=whole), whole, counter=counter)
    # Operations before an escaping exception may be dead, so their graph may rightly be missing.
    expected = chosen.graphs if whole and not report.raised and not identity_mode() else None
    return require_same(report, expected)
