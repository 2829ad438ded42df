"""Functions that the user put into the graph or called constant: what they are handed, compared with eager."""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events

X = torch.tensor([1.0, 2.0, 3.0])
Pair = collections.namedtuple("Pair", "weight factor")


@dataclasses.dataclass(frozen=True)
class Frozen:
    weight: torch.Tensor
    factor: int = 2
    more: tuple[Any, ...] = ()


@dataclasses.dataclass
class Open:
    weight: torch.Tensor
    factor: int = 2


@dataclasses.dataclass(frozen=True)
class Checked:
    weight: torch.Tensor
    factor: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", self.factor + 1)


class Callable:
    def __init__(self, weight: torch.Tensor, factor: int) -> None:
        self.weight = weight
        self.factor = factor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor + self.weight


@stator.allow_in_graph
def scaled(record: Any, x: torch.Tensor) -> torch.Tensor:
    return x * record.factor + record.weight


@stator.allow_in_graph
def applied(function: Any, x: torch.Tensor) -> torch.Tensor:
    return function(x)


def outer_function(factor: int) -> Any:
    return lambda x: x * factor


def run(fn: Any, calls: list[tuple[Any, ...]], **settings: Any) -> list[str]:
    """Equal to eager at every call; the codes of the breaks."""
    compiled = stator.compile(fn, backend="eager", options={"strict": True}, **settings)
    with events.record() as log:
        for args in calls:
            assert torch.equal(compiled(*args), fn(*args))
    assert not [event for event in log if isinstance(event, (events.InternalFailure, events.EagerFallback))]
    return [event.code for event in log if isinstance(event, events.GraphBreak)]


RECORDS = [(X, 2), (X + 1, 2), (X + 1, 3), (X, 4), (X, 5)]


@pytest.mark.parametrize("cls", [Frozen, Pair], ids=lambda cls: cls.__name__)
def test_records_reach_an_allowed_function(cls: Any) -> None:
    assert run(lambda r, x: scaled(r, x) * 2, [(cls(w, k), X) for w, k in RECORDS], fullgraph=True) == []
    assert run(lambda w, k, x: scaled(cls(w * 2, k), x), [(w, k, X) for w, k in RECORDS], fullgraph=True) == []


@pytest.mark.parametrize("cls", [Open, Checked, Callable], ids=lambda cls: cls.__name__)
def test_other_objects_break(cls: Any) -> None:
    assert set(run(lambda r, x: scaled(r, x) * 2, [(cls(w, k), X) for w, k in RECORDS])) == {"SB005"}
    assert set(run(lambda w, k, x: scaled(cls(w * 2, k), x), [(w, k, X) for w, k in RECORDS])) == {"SB005"}


def test_a_record_is_made_by_a_node_of_its_own() -> None:
    graphs: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    record = Frozen(X, 3, (X * 2, "text"))
    compiled = stator.compile(lambda r, x: scaled(r, x), backend=keep, fullgraph=True)
    assert torch.equal(compiled(record, X), scaled(record, X))
    assert [node.target for node in graphs[0].graph.nodes if node.op == "call_function"] == [Frozen, scaled]


def test_functions_handed_to_an_allowed_function() -> None:
    calls = [(outer_function(2), X), (outer_function(3), X)]  # one code, two functions
    assert run(lambda f, x: applied(f, x), calls, fullgraph=True) == []
    assert run(lambda k, x: applied(torch.sin, x) * k, [(2, X), (3, X)], fullgraph=True) == []
    assert run(lambda k, x: applied(lambda y: y.sin(), x) * k, [(2, X), (3, X)], fullgraph=True) == []
    assert set(run(lambda k, x: applied(lambda y: y * k, x), [(2, X), (3, X), (4, X)])) == {"SB005"}
    assert set(run(lambda k, x: applied(lambda y, k=k: y * k, x), [(2, X), (3, X), (4, X)])) == {"SB005"}
    assert set(run(lambda m, x: applied(m, x), [(nn.Linear(3, 3), X), (nn.Linear(3, 3), X)])) == {"SB005"}


def test_an_allowed_function_is_not_kept_for_what_it_yielded() -> None:
    def once(factor: int) -> Any:
        function = stator.allow_in_graph(lambda x: x * factor)
        run(lambda x: function(x) + 1, [(X,)], fullgraph=True)
        return weakref.ref(function)

    kept = [once(k) for k in (2, 3)]
    stator.reset()
    gc.collect()
    assert [reference() for reference in kept] == [None, None]


@stator.allow_in_graph
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        print("forward", end=";")  # which could not be captured as part of a forward
        ctx.size = x.size(0)
        return x * factor

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * ctx.size, None


@pytest.mark.parametrize("grad", [False, True])
def test_a_class_of_autograd_in_the_graph(grad: bool, capsys: Any) -> None:
    compiled = stator.compile(lambda x, k: Doubled.apply(x * 2, k) + 1, backend="eager", fullgraph=True)
    for factor in (2.0, 3.0):
        ours, theirs = (X.clone().requires_grad_(grad) for _ in range(2))
        got, expected = compiled(ours, factor), Doubled.apply(theirs * 2, factor) + 1
        assert torch.equal(got, expected) and got.requires_grad is grad
        if grad:
            got.sum().backward()
            expected.sum().backward()
            assert torch.equal(ours.grad, theirs.grad)
        capsys.readouterr()
        compiled(ours, factor)
        assert capsys.readouterr().out == "forward;"


# ---------------------------------------------------------------------- assumed constant


class Settings(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.table = {"sizes": [size, 2]}
        self.register_buffer("scale", torch.full((3,), float(size)))

    @stator.assume_constant_result
    def from_table(self) -> int:
        return self.size + self.table["sizes"][0]

    @stator.assume_constant_result
    def sizes(self) -> list[int]:
        return self.table["sizes"]

    @stator.assume_constant_result
    def number(self, times: int = 1) -> float:
        return float(self.scale.sum().item()) * times

    @stator.assume_constant_result
    def tensor(self) -> torch.Tensor:
        return self.scale * 2

    @stator.assume_constant_result
    def asked(self, function: Any) -> Any:
        return function(self.size)

    @stator.assume_constant_result
    def of(self, x: torch.Tensor) -> int:
        return x.shape[0]


@pytest.mark.parametrize("body", [
    lambda m, x: x * m.from_table(),
    lambda m, x: x * m.sizes()[0],
    lambda m, x: x * m.number() + m.number(times=3),
    lambda m, x: x * m.tensor(),
], ids=["number", "list", "item", "tensor"])
def test_a_constant_is_asked_of_the_users_own_object(body: Any) -> None:
    assert run(body, [(Settings(k), X) for k in (2, 2, 3)], fullgraph=True) == []


def test_a_constant_of_another_function_is_another() -> None:
    module = Settings(2)
    assert run(lambda f, x: x * module.asked(f), [(outer_function(k), X) for k in (2, 3)], fullgraph=True) == []


def test_a_constant_list_is_not_changed_by_tracing() -> None:
    module = Settings(2)

    def program(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.sizes().append(5)
        return x * len(m.table["sizes"])

    compiled = stator.compile(program, backend="eager")
    assert [compiled(module, X).tolist() for _ in range(2)] == [(X * 3).tolist(), (X * 4).tolist()]
    assert module.table["sizes"] == [2, 2, 5, 5]


def test_a_constant_after_a_change_or_of_a_tensor_breaks() -> None:
    def changed(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.size = 7
        return x * m.from_table()

    assert "SB006" in run(changed, [(Settings(2), X)])
    assert "SB005" in run(lambda m, x: x * m.of(x), [(Settings(2), X)])


TABLE: dict[str, int] = {"size": 2}


@stator.assume_constant_result
def size_of_table() -> int:
    return TABLE["size"]


@pytest.mark.parametrize("constant", [size_of_table, functools.lru_cache(size_of_table)], ids=["plain", "cached"])
def test_a_constant_after_a_change_of_what_it_does_not_read(constant: Any) -> None:
    def elsewhere(log: list[int], x: torch.Tensor) -> torch.Tensor:
        log.append(len(log))
        return x * constant()

    def inside(log: list[int], x: torch.Tensor) -> torch.Tensor:
        TABLE["size"] = len(log)
        return x * size_of_table()

    assert run(elsewhere, [([], X), ([1], X)], fullgraph=True) == []
    try:
        assert "SB006" in run(inside, [([1], X)])
    finally:
        TABLE["size"] = 2


def test_an_allowed_function_gets_sizes_as_such() -> None:
    @stator.allow_in_graph
    def filled(x: torch.Tensor, size: torch.Size) -> torch.Tensor:
        return x.new(size).fill_(size.numel())

    for dynamic in (None, True):
        compiled = stator.compile(lambda x: filled(x, x.shape) + x, backend="eager", fullgraph=True, dynamic=dynamic)
        for rows in (2, 3):
            x = torch.ones(rows, 2)
            assert torch.equal(compiled(x), filled(x, x.shape) + x)


class Scale:
    """A callable object with a name, as graphs want it."""

    def __init__(self, factor: float) -> None:
        self.factor, self.__name__ = factor, "scale"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def test_an_object_can_be_allowed_in_the_graph() -> None:
    targets: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        targets.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
        return graph

    two, three = stator.allow_in_graph(Scale(2)), stator.allow_in_graph(Scale(3))
    compiled = stator.compile(lambda scale, x: scale(x) + 1, backend=backend, fullgraph=True)
    for scale, factor in ((two, 2), (three, 3), (two, 2)):
        assert torch.equal(compiled(scale, X), X * factor + 1)
    assert [target for target in targets if target is two or target is three] == [two, three]


def test_an_allowed_object_without_a_name_is_interpreted() -> None:
    scale = stator.allow_in_graph(Scale(2))
    del scale.__name__
    compiled = stator.compile(lambda x: scale(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X * 2 + 1)
