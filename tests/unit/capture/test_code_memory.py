"""Numbers and sizes that differ between compile() calls of one code object are symbols from the second one on."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

import stator
from benchmarks import backend_calls
from benchmarks.sides import STATOR
from stator.capture import code_memory

pytestmark = pytest.mark.shares_entries
LIMITS = {"tensors": 1, "ints": 2, "floats": 2, "three strings": 3, "twenty strings": 1, "functions": 20,
          "functions of one code": 2, "modules": 2}


@pytest.fixture(autouse=True)
def cold() -> None:
    stator.reset()


@pytest.mark.parametrize("name", backend_calls.CASES)
def test_backend_calls(name: str) -> None:
    graphs, eager = backend_calls.count(STATOR, name)
    assert graphs <= LIMITS[name] and eager == 0


class Graphs:
    def __init__(self) -> None:
        self.made: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        self.made.append(gm)
        return gm.forward

    def symbols(self) -> list[bool]:
        return [any(isinstance(size, torch.SymInt) for node in gm.graph.find_nodes(op="placeholder")
                    for value in [node.meta["example_value"]]
                    for size in (value.shape if isinstance(value, torch.Tensor) else [value])) for gm in self.made]


def shifted(offset: Any) -> Any:
    def shift(x: torch.Tensor) -> torch.Tensor:
        return x + offset

    return shift


def test_sizes() -> None:
    graphs = Graphs()
    for size in (3, 4, 5, 6):
        x = torch.randn(size)
        assert torch.equal(stator.compile(shifted(1), backend=graphs)(x), x + 1)
    assert graphs.symbols() == [False, True]


def test_sizes_of_tensors_in_closures() -> None:
    graphs = Graphs()
    for size in (3, 4, 5, 6):
        offset = torch.randn(size)
        x = torch.randn(2, 1)
        assert torch.equal(stator.compile(shifted(offset), backend=graphs)(x), x + offset)
    assert graphs.symbols() == [False, True]


def test_bools_and_numbers_of_other_types_are_constants() -> None:
    graphs = Graphs()
    x = torch.arange(3)
    for value in (2, True, 2.0, False):
        result = stator.compile(shifted(value), backend=graphs)(x)
        assert torch.equal(result, x + value) and result.dtype is (x + value).dtype
    assert not any(graphs.symbols())


def test_globals_of_the_function() -> None:
    graphs = Graphs()
    for number in (2, 3, 4, 5):
        namespace: dict[str, Any] = {"number": number}
        code = shifted_by_global.__code__
        run = type(shifted_by_global)(code, namespace)
        x = torch.randn(3)
        assert torch.equal(stator.compile(run, backend=graphs)(x), x + number)
    assert graphs.symbols() == [False, True]


def shifted_by_global(x: torch.Tensor) -> torch.Tensor:
    return x + number  # type: ignore[name-defined]  # noqa: F821


def test_behind_a_graph_break() -> None:
    def broken(number: int) -> Any:
        def run(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            stator.graph_break()
            return y + number

        return run

    graphs = Graphs()
    x = torch.randn(3)
    for number in (2, 3, 4, 5, 6):
        assert torch.equal(stator.compile(broken(number), backend=graphs)(x), x * 2 + number)
    assert len(graphs.made) <= 3


class Model(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).unflatten(-1, (self.heads, -1)).sum(-1)  # type: ignore[no-any-return]


def test_models_of_other_sizes_teach_nothing() -> None:
    graphs = Graphs()
    for width, heads in ((4, 2), (6, 3), (8, 4)):
        model, x = Model(width, heads), torch.randn(3, width)
        assert torch.equal(stator.compile(model, backend=graphs)(x), model(x))
    assert graphs.symbols() == [False, False, False]


def test_isolated_compile_calls_learn_for_themselves() -> None:
    graphs = Graphs()
    for number in (2, 3, 4):
        stator.compile(shifted(number), backend=graphs, isolate_recompiles=True)(torch.ones(2))
    assert graphs.symbols() == [False, False, False]
    stator.compile(shifted(5), backend=graphs)(torch.ones(2))
    assert not graphs.symbols()[-1]


def test_static_compile_calls_stay_static() -> None:
    graphs = Graphs()
    for number in (2, 3):
        stator.compile(shifted(number), backend=graphs)(torch.ones(2))
    x = torch.ones(2)
    for number in (4, 5):
        assert torch.equal(stator.compile(shifted(number), backend=graphs, dynamic=False)(x), x + number)
    assert graphs.symbols() == [False, True, False, False]


def test_nothing_of_the_user_is_kept() -> None:
    class Held:
        pass

    held, offset = Held(), torch.ones(2)

    def shift(x: torch.Tensor) -> torch.Tensor:
        return x + offset if held is not None else x

    stator.compile(shift, backend="aot_eager")(torch.ones(2))
    assert code_memory._records
    alive = [weakref.ref(each) for each in (held, offset, shift)]
    del held, offset, shift
    gc.collect()
    assert [each() for each in alive] == [None] * 3
    stator.reset()
    assert not code_memory._records


def test_a_class_of_the_user_is_not_kept() -> None:
    """A class keeps what its methods close over."""
    def run() -> Any:
        held = torch.nn.Linear(2, 2)

        class Around(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> Any:
                return held(x)

        stator.compile(Around(), backend="eager")(torch.ones(2, 2))
        return weakref.ref(held)

    alive = run()
    for _ in range(2):  # the first collection runs finalizers of the entry
        gc.collect()
    assert code_memory._records and alive() is None
