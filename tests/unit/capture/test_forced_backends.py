"""set_stance(force_backend=...): every compiled function uses that backend for a while, and its own afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import stator


class Counting:
    """A backend that runs the graph as it is, and counts its graphs and their calls."""

    def __init__(self) -> None:
        self.graphs = self.calls = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.graphs += 1

        def run(*args: Any) -> Any:
            self.calls += 1
            return graph(*args)

        return run


@pytest.fixture(autouse=True)
def default_stance() -> Iterator[None]:
    yield
    stator.set_stance("default")


def broken(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    stator.graph_break()
    return x * 2


def test_each_backend_keeps_its_entries() -> None:
    own, forced, other = Counting(), Counting(), Counting()
    fn = stator.compile(broken, backend=own)
    x = torch.ones(2)
    for _ in range(2):
        assert torch.equal(fn(x), broken(x))
        with stator.set_stance(force_backend=forced):
            assert torch.equal(fn(x), broken(x))
            with stator.set_stance(force_backend=other):
                assert torch.equal(fn(x), broken(x))
            assert torch.equal(fn(x), broken(x))
    assert (own.graphs, own.calls) == (2, 4) and (forced.graphs, forced.calls) == (2, 8)
    assert (other.graphs, other.calls) == (2, 4)


def test_functions_that_are_made_meanwhile() -> None:
    own, forced = Counting(), Counting()
    with stator.set_stance(force_backend=forced):
        fn = stator.compile(lambda x: x + 1, backend=own, fullgraph=True)
        fn(torch.ones(2))
    assert (own.graphs, forced.graphs) == (0, 1)
    fn(torch.ones(2))
    assert (own.graphs, forced.graphs) == (1, 1)


def test_as_a_decorator_and_by_name() -> None:
    own = Counting()
    fn = stator.compile(lambda x: x.sin() + 1, backend=own)

    @stator.set_stance(force_backend="eager")
    def run(x: torch.Tensor) -> Any:
        return fn(x)

    x = torch.ones(2)
    assert torch.equal(run(x), x.sin() + 1) and own.graphs == 0
    assert torch.equal(fn(x), x.sin() + 1) and own.graphs == 1


def test_what_is_refused_changes_nothing() -> None:
    own = Counting()
    fn = stator.compile(lambda x: x + 1, backend=own)
    for arguments in ({"stance": "force_eager", "force_backend": "eager"}, {"force_backend": "no such backend"},
                      {"force_backend": 3}):
        with pytest.raises(stator.OptionError):
            stator.set_stance(**arguments)  # type: ignore[arg-type]
    fn(torch.ones(2))
    assert own.calls == 1


def test_reset_forgets_those_put_aside() -> None:
    own, forced = Counting(), Counting()
    fn = stator.compile(lambda x: x + 1, backend=own)
    fn(torch.ones(2))
    with stator.set_stance(force_backend=forced):
        fn(torch.ones(2))
        stator.reset()
    fn(torch.ones(2))
    assert own.graphs == 2
