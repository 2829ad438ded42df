"""Every breaking instruction in every construct: the compiled program equals eager, call after call."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch

from tests.breaks.matrix import programs
from tests.breaks.natively import natively
from tests.comparison import Surroundings, World, compare_worlds, require_same, stator_compiler

CASES = dict(programs())
DRIVEN_BY_C = ("callback-",)


def load(name: str, source: str) -> Any:
    filename = f"<break matrix {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), namespace)
    return namespace["program"]


def world(name: str, inputs: list[list[float]]) -> World:
    """The program on a log of its own in each call."""
    program = load(name, CASES[name])
    calls = [lambda numbers=numbers: ((torch.tensor(numbers), []), {}) for numbers in inputs]
    return World(program, calls, Surroundings(program.__module__, program.__code__.co_filename))


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    inputs = [[1.0, 2.0], [1.0, 2.0], [3.0, -5.0]]
    report = require_same(compare_worlds(lambda: world(name, inputs), stator_compiler(recompile_limit=64)))
    # A break inside a callback of C code runs natively from that call on: nothing may be left to capture.
    assert report.graph_modules or name.startswith(DRIVEN_BY_C), "nothing was captured around the break"


@pytest.mark.parametrize("name", CASES)
def test_the_native_continuation_equals_eager(name: str) -> None:
    with natively():
        require_same(compare_worlds(lambda: world(name, [[1.0, 2.0]])))


def test_there_are_at_least_200_combinations() -> None:
    assert len(CASES) >= 200
