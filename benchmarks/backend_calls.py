"""Backend calls for many closures of one code and many modules of one class: `python -m benchmarks.backend_calls`.

In: 20 closures over tensors, ints, floats, strings or functions, and 20 modules that differ in an int, each compiled
once and called once.  Out: how often each side calls a backend, and how many calls torch._dynamo leaves to eager
once its recompile limit is reached.  Every result is compared with eager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo

from benchmarks.sides import DYNAMO, STATOR, Side

COUNT = 20
Programs = list[Callable[..., Any]]


def scaled(factor: Any) -> Callable[..., Any]:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x * factor + 1

    return run


def chosen(name: str) -> Callable[..., Any]:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x.relu() if name == "relu" else x.sigmoid() if name == "sigmoid" else x.tanh()

    return run


def applied(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: torch.Tensor) -> torch.Tensor:
        return function(x) + 1

    return run


def multiply_by(number: int) -> Callable[..., Any]:
    return lambda x: x * number


def own_function(number: int) -> Callable[..., Any]:
    """A function with a code object and a graph of its own."""
    namespace: dict[str, Any] = {}
    exec(f"def function(x):\n    return x * {number}.5\n", namespace)
    function: Callable[..., Any] = namespace["function"]
    return function


class Scaled(torch.nn.Module):
    def __init__(self, factor: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.factor  # type: ignore[no-any-return]


CASES: dict[str, Callable[[], Programs]] = {
    "tensors": lambda: [scaled(torch.randn(4)) for _ in range(COUNT)],
    "ints": lambda: [scaled(number + 2) for number in range(COUNT)],
    "floats": lambda: [scaled(number + 0.5) for number in range(COUNT)],
    "three strings": lambda: [chosen(("relu", "sigmoid", "tanh")[number % 3]) for number in range(COUNT)],
    "twenty strings": lambda: [chosen(f"tanh {number}") for number in range(COUNT)],
    "functions": lambda: [applied(own_function(number)) for number in range(COUNT)],
    "functions of one code": lambda: [applied(multiply_by(number + 2)) for number in range(COUNT)],
    "modules": lambda: [Scaled(number + 2) for number in range(COUNT)],
}


def count(side: Side, name: str) -> tuple[int, int]:
    """Backend calls, and calls of programs that ran no graph."""
    graphs, runs = 0, 0

    def backend(graph: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        nonlocal graphs
        graphs += 1

        def run(*inputs: Any) -> Any:
            nonlocal runs
            runs += 1
            return graph.forward(*inputs)

        return run

    side.make_cold()
    torch.manual_seed(0)
    programs, x = CASES[name](), torch.randn(3, 4)
    for program in programs:
        result, expected = side.compile(program, backend)(x), program(x)
        if not torch.equal(result, expected):
            raise AssertionError(f"{side.name}, {name}: the result differs from eager")
    return graphs, len(programs) - runs


def main() -> None:
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # the recompile limit
    print(f"{COUNT} closures or modules       stator   torch._dynamo")
    for name in CASES:
        ours, theirs = count(STATOR, name), count(DYNAMO, name)
        print(f"{name:27} {ours[0]:6} {theirs[0]:15}" + (f"   ({theirs[1]} calls eager)" if theirs[1] else ""))


if __name__ == "__main__":
    main()
