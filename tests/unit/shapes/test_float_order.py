"""Floats are computed in the program's order: no algebra that holds for real numbers only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator import events

PROGRAMS: dict[str, Callable[[float, int], Any]] = {
    "a number less itself": lambda f, n: f - f,
    "a product with zero": lambda f, n: (f * 0.0, f * 0, n * 0.0, -0.0 * n),
    "a sum with zero": lambda f, n: (f + 0.0, 0.0 - f, 0 + f, f - 0.0),
    "a sum less itself": lambda f, n: (f + f) - (f + f),
    "compared with itself": lambda f, n: (f <= f, f != f, f + f == f + f, (f - f) >= (f - f), [f] == [f]),
    "sums that round": lambda f, n: (f + 1e16) - 1e16,
    "a product that rounds": lambda f, n: (f * 3) * (1 / 3) - f,
    "twice less once": lambda f, n: f * 2 - f,
    "a distributed product": lambda f, n: (f + n) * 0.1 - f * 0.1,
    "a comparison of sums": lambda f, n: (f + 0.1) + 0.2 == f + (0.1 + 0.2),
    "an order of sums": lambda f, n: (f + 1e16) - 1e16 < f,
    "infinite constants": lambda f, n: (f + math.inf, f * -math.inf, f < math.inf),
    "powers": lambda f, n: (f ** 0, f ** 2, f * f),
    "negated": lambda f, n: (-f + f, -(-f), abs(f) - f),
    "sum of a list": lambda f, n: sum([f, f * 2, n]),
    "what overflows": lambda f, n: (math.isinf(f * f), math.isnan(f * n - f * n), math.isfinite(f + f), f * n == f * n),
    "negated sums": lambda f, n: -(f + 1e16) + f,
    "negated sums with one": lambda f, n: (-(f + 1), -(f - 1.0), -(1 - f), f * -1, -1.0 * f - 1),
    "grouped sums": lambda f, n: ((f + 1e16) + n) - (f + 1e16),
    "a longer sum": lambda f, n: ((1.0 + f / 6.0) - math.cos(0.5) * f, (f - n / 7) + f / 3),
    "a longer product": lambda f, n: ((f / 3) * (n / 7) * f, (0.1 + f / 3) * (n / 7) * 1.0),
    "a cube": lambda f, n: (f / 3) * (f / 3) * (f / 3),
    "a multiple of a sum": lambda f, n: (0.3 * (f / 3 + n / 7), (f / 3 - n / 7) * -0.7),
    "a product over itself": lambda f, n: (f * 2.0) * 0.5 - f * 1.0,
}
CALLS = ((1.5, 3), (2.5, 4), (3.7, 5), (-0.0, 0), (0.0, -3), (math.inf, 7), (math.nan, 8), (-2.25, -4), (1e300, 9),
         (1.7e308, 10))


def outcome(program: Callable[..., Any], f: float, n: int) -> str:
    try:
        return repr(program(torch.ones(1), f, n))
    except OverflowError as error:
        return repr(error)


@pytest.mark.filterwarnings("ignore:stator. recompile limit")
@pytest.mark.parametrize(("backend", "dynamic"), [("eager", None), ("eager", True), ("aot_eager", None)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_python_computes(name: str, backend: str, dynamic: bool | None) -> None:
    compute = PROGRAMS[name]

    def program(x: torch.Tensor, f: float, n: int) -> Any:
        return compute(f, n), x + 1

    compiled = stator.compile(program, backend=backend, dynamic=dynamic, options={"strict": True})
    for f, n in CALLS:
        assert outcome(compiled, f, n) == outcome(program, f, n)


def test_a_number_of_the_graph() -> None:
    def program(x: torch.Tensor) -> Any:
        total = x.sum().item()
        return x * ((total + 1e16) - 1e16), total - total

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for x in (torch.arange(4.0), torch.arange(6.0), torch.tensor([math.inf])):
        (left, none), (right, other) = program(x), compiled(x)
        assert repr(left) == repr(right)
        assert repr(none) == repr(other)


def test_relations_between_open_numbers_settle() -> None:
    """Distances, roundings and shifts have a place in guards: a new number is a new capture where the answer is new."""
    def program(x: torch.Tensor, f: float, n: int) -> Any:
        said = [name for name, held in (("near", abs(f - n) < 1e-9), ("round", round(f) > 100), ("left", n << 2 > 100),
                                        ("right", n >> 1 > 50), ("itself", f <= f)) if held]
        return x + 1, said

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    with events.record() as log:
        for f, n in ((1.5, 3), (2.5, 4), (3.7, 5), (4.1, 6), (-7.5, 8), (2.5, 9)):
            assert repr(program(torch.ones(1), f, n)) == repr(compiled(torch.ones(1), f, n))
    assert sum(isinstance(event, events.CaptureFinished) for event in log) == 2
    for f, n in ((7.0, 7), (100.6, 9), (5.5, 26), (5.5, 102), (2.5, 4)):
        assert repr(program(torch.ones(1), f, n)) == repr(compiled(torch.ones(1), f, n))


def test_a_float_that_changes_stays_open_for_a_compiler() -> None:
    """AOTAutograd would have it a constant, and the graph compiled for each value."""
    def scaled(x: torch.Tensor, scale: float) -> torch.Tensor:
        return x * scale + scale

    compiled = stator.compile(scaled, backend="aot_eager")
    with events.record() as log:
        for scale in (0.5, 1.5, 2.5, 3.5, 4.5):
            assert torch.equal(compiled(torch.ones(3), scale), scaled(torch.ones(3), scale))
    assert sum(isinstance(event, events.BackendCompiled) for event in log) == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sums_that_round_stay_in_the_graph(backend: str) -> None:
    compiled = stator.compile(lambda x, f: x * ((f + 1e16) - 1e16), backend=backend, fullgraph=True)
    for number in (1.5, 2.5, 3.5):
        assert torch.equal(compiled(torch.ones(2), number), torch.ones(2) * ((number + 1e16) - 1e16))


@pytest.mark.parametrize("compute", [lambda a, b: (1.0 + a) - b, lambda a, b: (a - b) + (a + 0.5), lambda a, b: a * b * a,
                                     lambda a, b: 0.3 * (a + b), lambda a, b: a * a * a])
def test_a_chain_is_no_term_of_symbols(compute: Callable[..., Any]) -> None:
    """AOTAutograd computes a term in the order of sympy, whose sums and products have none."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = stator.compile(lambda x: x * compute(x.sum().item(), x.max().item()), backend=backend, fullgraph=True)
    x = torch.tensor([0.1, 0.7, 0.3])
    assert torch.equal(compiled(x), x * compute(x.sum().item(), x.max().item()))
    assert any("stator.float_" in str(node.target) for node in graphs[0].graph.nodes)
