"""A number of the graph as an index: one compile for all of them, items and errors as eager has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

Program = Callable[[torch.Tensor, int, torch.Tensor], Any]


def written(x: torch.Tensor, n: int, t: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[n] = 1.0
    x[:, n] = t[0].to(x.dtype)
    x[n, 1:n] += 2
    x[t, n] = 3.0
    x[..., n - 1] *= 2
    return x


def accumulated(x: torch.Tensor, n: int, t: torch.Tensor) -> torch.Tensor:
    rows = []
    for i in range(3):
        rows.append(x[n - i] + x[i, n])
    return torch.stack(rows)


READS: dict[str, Program] = {
    "x[n]": lambda x, n, t: x[n],
    "x[-n]": lambda x, n, t: x[-n],
    "x[:, n]": lambda x, n, t: x[:, n],
    "x[n, :]": lambda x, n, t: x[n, :],
    "x[..., n]": lambda x, n, t: x[..., n],
    "x[n, ..., n]": lambda x, n, t: x[n, ..., n],
    "x[n, n]": lambda x, n, t: x[n, n],
    "x[None, n]": lambda x, n, t: x[None, n],
    "x[n, None, 1:]": lambda x, n, t: x[n, None, 1:],
    "x[t, n]": lambda x, n, t: x[t, n],
    "x[n, t]": lambda x, n, t: x[n, t],
    "x[True, n]": lambda x, n, t: x[True, n],
    "x[mask, n]": lambda x, n, t: x[torch.arange(8) > 2, n],
    "mask of two dimensions": lambda x, n, t: x[:, :, None].expand(8, 9, 9)[torch.ones(8, 9) > 0, n],
    "x[[n, 1]]": lambda x, n, t: x[[n, 1]],
    "x[:, [0, n]]": lambda x, n, t: x[:, [0, n]],
    "operator": lambda x, n, t: torch.Tensor.__getitem__(x, n),
    "written": written,
    "accumulated": accumulated,
    "made": lambda x, n, t: torch.tensor([[n, 1], [2, n + 1]]),
    "made of floats": lambda x, n, t: torch.tensor([[n * 0.5], [2.0]]),
}


def counting(log: list[Any]) -> Callable[..., Any]:
    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        log.append(graph)
        return graph.forward

    return backend


@pytest.mark.parametrize("name", READS)
def test_one_compile(name: str) -> None:
    program, log = READS[name], []
    compiled = stator.compile(program, backend=counting(log), dynamic=True, fullgraph=True)
    t = torch.tensor([0, 2])
    for n in (3, 4, 5, 6):
        x = torch.randn(8, 9)
        wanted, found = program(x, n, t), compiled(x, n, t)
        assert torch.equal(wanted, found) and wanted.dtype == found.dtype
        assert wanted.stride() == found.stride()
    assert len(log) == 1


def test_a_view_is_a_view() -> None:
    compiled = stator.compile(lambda x, n: x[:, n], backend="eager", dynamic=True)
    for n in (2, 3, 4):
        x = torch.zeros(4, 5)
        compiled(x, n).add_(1)
        assert torch.equal(x[:, n], torch.ones(4)) and x.sum() == 4


@pytest.mark.parametrize("key", [lambda n: n, lambda n: (slice(None), n), lambda n: (n, n), lambda n: (0, 0, n)])
def test_out_of_range(key: Callable[[int], Any]) -> None:
    def program(x: torch.Tensor, n: int) -> torch.Tensor:
        return x[key(n)]

    compiled = stator.compile(program, backend="eager", dynamic=True)
    for n in (2, 9, -3, -9, 3, 7):
        x = torch.randn(5, 6)
        try:
            wanted: Any = program(x, n)
        except IndexError as error:
            with pytest.raises(IndexError) as caught:
                compiled(x, n)
            assert str(caught.value) == str(error)
        else:
            assert torch.equal(compiled(x, n), wanted)


def test_an_index_known_to_the_graph_beside_an_index_tensor() -> None:
    def program(x: torch.Tensor, n: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[t, n.item()] = 5.0
        return x + x[t, n.item()].sum()

    log: list[Any] = []
    compiled = stator.compile(program, backend=counting(log))
    t = torch.tensor([0, 2])
    for n in (1, 2, 0):
        x = torch.randn(4, 5)
        assert torch.equal(compiled(x, torch.tensor(n), t), program(x, torch.tensor(n), t))
    assert len(log) == 1


LISTS: list[Callable[[Any], Any]] = [
    lambda n: [n, 1], lambda n: [n, True], lambda n: [n, None], lambda n: [n, 1.0], lambda n: [n, slice(None)], lambda n: [n, ...],
    lambda n: [[n, 0], [1, n]], lambda n: ([n, 1], [0, 1]), lambda n: [torch.tensor(1), n], lambda n: [n, torch.ones(2)],
    lambda n: [n, "a"],
]


@pytest.mark.parametrize("place", range(len(LISTS)))
@pytest.mark.parametrize("of_a_tensor", [False, True])
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_lists_with_a_number_of_the_graph(place: int, of_a_tensor: bool) -> None:
    def read(x: torch.Tensor, n: Any) -> Any:
        return x[LISTS[place](n.item() if of_a_tensor else n)]

    def write(x: torch.Tensor, n: Any) -> Any:
        x[LISTS[place](n.item() if of_a_tensor else n)] = 7.0
        return x

    for program in (read, write):
        compiled = stator.compile(program, backend="eager", dynamic=True, options={"strict": True})
        for n in (1, 2, 0, 3):
            outcomes = []
            for run in (program, compiled):
                x, given = torch.arange(12.0).reshape(4, 3), torch.tensor(n) if of_a_tensor else n
                try:
                    outcomes.append(run(x, given).tolist())
                except Exception as error:
                    outcomes.append((type(error), str(error)))
            assert outcomes[0] == outcomes[1], (program.__name__, n)


@pytest.mark.parametrize("key", [lambda n: n, lambda n: (slice(None), n), lambda n: (..., n), lambda n: (n, slice(None))])
def test_history_of_a_selected_part(key: Callable[[int], Any]) -> None:
    """Autograd's record has the steps that it has in eager, and no more."""
    def program(x: torch.Tensor, n: int) -> torch.Tensor:
        return x[key(n)]

    def steps(made: torch.Tensor) -> list[str]:
        node, names = made.grad_fn, []
        while node is not None:
            names.append(node.name())
            node = node.next_functions[0][0] if node.next_functions else None
        return names

    compiled = stator.compile(program, backend="eager", dynamic=True)
    for n in (1, 2, 3):
        x = torch.randn(4, 5, requires_grad=True)
        assert steps(compiled(x, n)) == steps(program(x, n))


@pytest.mark.parametrize("key", [lambda n: n, lambda n: (slice(None), n), lambda n: (n, n), lambda n: (..., n)])
def test_out_of_range_inside_a_handler(key: Callable[[int], Any]) -> None:
    def program(x: torch.Tensor, n: int) -> Any:
        try:
            return x[key(n)].tolist()
        except IndexError as error:
            return str(error)

    compiled = stator.compile(program, backend="eager", dynamic=True, options={"strict": True})
    for n in (1, 2, 3, 4, -4, -5, 9):
        x = torch.arange(12.0).reshape(4, 3)
        assert compiled(x, n) == program(x, n)
