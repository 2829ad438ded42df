"""Storages below arrays: Tensor.numpy() makes them fixed in size, whether the array is kept or dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import stator


def made(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y.numpy()
    return y


def made_and_resized(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y.numpy()
    return y.resize_(100)


def across_a_break(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y.numpy()
    stator.graph_break()
    return y.resize_(100)


def handled(x: torch.Tensor) -> str:
    x.numpy()
    try:
        x.resize_(100)
    except RuntimeError as error:
        return str(error)
    return ""


def resized(x: torch.Tensor, _: Any = None) -> torch.Tensor:
    return x.resize_(100)


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "dropped": lambda x: (x.numpy(), 1)[1],
    "resized": lambda x: resized(x, x.numpy()),
    "shrunk": lambda x: (x.numpy(), x.resize_(2))[1],
    "view": lambda x: resized(x, x[1:].numpy()),
    "view, dropped": lambda x: (x[1:].numpy(), x + 1)[1],
    "asarray": lambda x: resized(x, numpy.asarray(x)),
    "computed with": lambda x: resized(x, numpy.add(x.numpy(), 1)),
    "out=": lambda x: (x.numpy(), torch.add(torch.ones(8), 1, out=x))[1],
    "storage": lambda x: (x.numpy(), x.untyped_storage().resize_(100), x)[2],
    "break": lambda x: (x.numpy(), stator.graph_break(), resized(x))[2],
    "view, break": lambda x: (x[1:].numpy(), stator.graph_break(), resized(x))[2],
    "not an array": resized,
    "made": made,
    "made and resized": made_and_resized,
    "made, break": across_a_break,
    "handled": handled,
}


def outcome(program: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    """Shapes and whether storages can be resized: what lies behind the old size is not initialised."""
    try:
        result = program(x)
    except RuntimeError as error:
        result = str(error)
    seen = (result.shape, result.untyped_storage().resizable()) if isinstance(result, torch.Tensor) else result
    return seen, x.shape, x.untyped_storage().resizable(), x.untyped_storage().nbytes()


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_eager(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    program = PROGRAMS[name]
    compiled = stator.compile(program, backend=backend)
    for fixed in (False, False, True, False):
        mine, theirs = torch.arange(4.0), torch.arange(4.0)
        if fixed:
            mine.numpy(), theirs.numpy()
        assert outcome(compiled, mine) == outcome(program, theirs)
