"""Functions marked with nonstrict_trace: arguments and results of classes that pytree knows, and tensors they hold."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from torch.utils import _pytree as pytree

import stator

T = torch.Tensor


class Point:
    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


class Tagged:
    """Its name is its context."""

    def __init__(self, points: Any, name: Any) -> None:
        self.points, self.name = points, name


class Unknown(Point):
    pass


pytree.register_pytree_node(Point, lambda p: ([p.x, p.y], None), lambda parts, _: Point(*parts))
pytree.register_pytree_node(Tagged, lambda t: (list(t.points), t.name), lambda parts, name: Tagged(parts, name))
HELD = torch.arange(3.0)
LAYERS = {"a": torch.nn.Linear(3, 3), "b": torch.nn.Linear(3, 3)}


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STATOR_STRICT", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # AOTAutograd cannot trace a function that holds tensors
        yield


def product(point: Any, by: Any = 1) -> Any:
    return point.x * point.y * by


def moved(tagged: Any, by: Any) -> Any:
    return {"moved": Tagged([Point(p.x + by, p.y * 2) for p in tagged.points], tagged.name + "!"), "count": 3}


def holding(x: T) -> Any:
    return x + HELD, Point(x * HELD, x)


def through_layers(x: T, layers: Any) -> T:
    return layers["a"](x) + layers["b"](x)  # type: ignore[no-any-return]


MARKED = {function: torch._dynamo.nonstrict_trace(function) for function in (product, moved, holding, through_layers)}


def made_inside(x: T, outside: Any) -> Any:
    point = Point(x, x + 1)
    point.x = point.x + 1
    return MARKED[product](point, by=2), point.x


def from_outside(x: T, outside: Any) -> Any:
    return MARKED[product](outside, by=x) + outside.x


def in_containers(x: T, outside: Any) -> Any:
    made = MARKED[moved](Tagged([outside, Point(x, x)], "name"), 4)
    tagged = made["moved"]
    return tagged.name, [(p.x, p.y) for p in tagged.points], type(tagged).__name__, made["count"]


def of_held_tensors(x: T, outside: Any) -> Any:
    y, point = MARKED[holding](x.sin())
    return y + point.x, point.y


def of_modules(x: T, outside: Any) -> Any:
    return MARKED[through_layers](x, LAYERS).relu()


def of_a_lambda(x: T, outside: Any) -> Any:
    return MARKED_LAMBDA(x) + 1


MARKED_LAMBDA = torch._dynamo.nonstrict_trace(lambda x: x.cos())
WHOLE = [made_inside, from_outside, in_containers, of_held_tensors, of_modules, of_a_lambda]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", WHOLE, ids=lambda program: program.__name__)
def test_captured_whole(program: Callable[..., Any], backend: str) -> None:
    compiled = stator.compile(program, backend=backend, fullgraph=True)
    for step in range(3):
        x, outside = torch.ones(3) * step, Point(torch.arange(3.0) + step, 2)
        assert str(compiled(x, outside)) == str(program(x, outside))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_of_tensors_that_a_function_holds(backend: str) -> None:
    found = []
    for call in (of_modules, stator.compile(of_modules, backend=backend, fullgraph=True)):
        for layer in LAYERS.values():
            layer.zero_grad()
        x = torch.ones(2, 3, requires_grad=True)
        call(x, None).sum().backward()
        found.append([x.grad, *[parameter.grad for layer in LAYERS.values() for parameter in layer.parameters()]])
    assert str(found[0]) == str(found[1])


def test_a_class_that_pytree_does_not_know_breaks() -> None:
    def program(x: T) -> Any:
        return MARKED[product](Unknown(x, x))

    assert torch.equal(stator.compile(program, backend="eager")(torch.ones(3)), program(torch.ones(3)))
    with pytest.raises(stator.Unsupported, match="a Unknown passed to"):
        stator.compile(program, backend="eager", fullgraph=True)(torch.ones(3))
