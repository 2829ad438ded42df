"""Tensors that stay where they are: which placeholders carry the mark that CUDA graphs need, and when the address counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo

import stator
from stator.errors import OptionTypeError


class Marks:
    """A backend that keeps, for each graph, which inputs are said to stay."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str | None]] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        self.seen.append({node.name: node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
                          for node in gm.graph.nodes if node.op == "placeholder"})
        return gm


class Holder(torch.nn.Module):
    def __init__(self, replaces: bool = False) -> None:
        super().__init__()
        self.held = torch.ones(2, 2)
        self.weight = torch.nn.Parameter(torch.ones(2, 2))
        self.register_buffer("cache", torch.zeros(2, 2))
        self.replaces = replaces

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.add_(x)
        y = self.held * x + self.weight + self.cache
        if self.replaces:
            self.held = y.detach()
        return y


def test_members_and_tensors_that_a_module_holds_stay() -> None:
    marks = Marks()
    x = torch.ones(2, 2)
    assert torch.equal(stator.compile(Holder(), backend=marks)(x), Holder()(x))
    (seen,) = marks.seen
    assert sorted(seen.values(), key=str) == [None, "unguarded", "unguarded", "unguarded"]


def test_what_the_program_replaces_does_not_stay() -> None:
    marks = Marks()
    module = Holder(replaces=True)
    stator.compile(module, backend=marks)(torch.ones(2, 2))
    (seen,) = marks.seen
    assert [kind for name, kind in seen.items() if "held" in name] == [None]


def test_an_argument_that_is_a_buffer_too_stays() -> None:
    marks = Marks()
    module = Holder()

    @stator.compile(backend=marks)
    def program(x: torch.Tensor, same: torch.Tensor, module: torch.nn.Module) -> torch.Tensor:
        return same + 1 + module(x)

    program(torch.ones(2, 2), module.cache, module)
    assert marks.seen[0]["same"] == "unguarded" and marks.seen[0]["x"] is None


class Box:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


@pytest.mark.parametrize("mark", [stator.mark_static_address, torch._dynamo.mark_static_address])
@pytest.mark.parametrize("guard, compiles", [(False, 1), (True, 2)])
def test_a_marked_tensor(mark: Any, guard: bool, compiles: int) -> None:
    marks = Marks()

    @stator.compile(backend=marks)
    def program(x: torch.Tensor, box: Box) -> torch.Tensor:
        box.value.add_(x)
        return box.value * 2

    one, other = Box(torch.zeros(3)), Box(torch.ones(3))
    mark(one.value, guard=guard)
    mark(other.value, guard=guard)
    x = torch.arange(3.0)
    for box, start in ((one, 0.0), (other, 1.0), (one, 0.0)):
        with torch.no_grad():
            box.value.fill_(start)
        assert torch.equal(program(x, box), (x + start) * 2)
    assert len(marks.seen) == compiles
    assert all(seen["box_value"] == ("guarded" if guard else "unguarded") and seen["x"] is None for seen in marks.seen)


def test_only_a_tensor_has_an_address() -> None:
    with pytest.raises(OptionTypeError, match="use a tensor"):
        stator.mark_static_address([1])  # type: ignore[arg-type]
