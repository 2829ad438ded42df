"""A differentiable program run eagerly and captured: results, gradients, what hooks noted, twice, from fresh state.

    check(make)                 `make(log)` gives a function and a list of arguments; one graph, equal to eager
    check(make, breaks="SB016") the same through graph breaks; fullgraph=True refuses with that code
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from tests.comparison import (
    Checks,
    Report,
    Surroundings,
    World,
    compare_worlds,
    require_same,
    stator_compiler,
)
from tests.comparison.call_outcome import seed_streams

BACKENDS = ("eager", "aot_eager")


def values(seed: int = 7, *shapes: tuple[int, ...], wants_grad: bool = True) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=source).requires_grad_(wants_grad) for shape in shapes or ((3, 4),)]


CHECKS = Checks(tolerance=1e-4, strides="none", warnings="kept", gradients="backward", seed=None)


def side(make: Callable[[list[Any]], Any], calls: int) -> World:
    """Function and arguments are made once; gradients accumulate from call to call."""
    seed_streams(0)
    log: list[Any] = []
    function, args = make(log)
    return World(function, [lambda: (tuple(args), {})] * calls, Surroundings(function.__module__, state=lambda: log))


def check(make: Callable[[list[Any]], Any], backend: str = "eager", breaks: str = "", calls: int = 2) -> None:
    def report(fullgraph: bool) -> Report:
        return compare_worlds(lambda: side(make, calls), stator_compiler(backend, strict=False, fullgraph=fullgraph), checks=CHECKS)

    if breaks:
        refused = report(fullgraph=True).unsupported
        assert refused is not None and re.search(breaks, refused), refused
    found = require_same(report(fullgraph=not breaks))
    failed = [why for why in found.fallbacks if why.startswith("it raised")]
    assert not failed, "the program ran as it is, since its graph raised"
