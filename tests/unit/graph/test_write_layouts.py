"""Writes by rule beside FakeTensor and real tensors; views of parameters under no_grad(), which have no rule."""

from __future__ import annotations

import operator
import random
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

import stator
from stator.graph.metadata.layout_rules import WRITTEN
from stator.graph.metadata.propagation import Propagation
from stator.graph.metadata.write_layouts import _WRITES, foresee_write
from tests.unit.graph.test_layout_rules import extent, layouts, outcome, tensor

_ONE = """neg abs relu sigmoid tanh exp log sqrt rsqrt zero logical_not bitwise_not hardswish hardsigmoid hardtanh relu6
    silu mish elu leaky_relu""".split()


def call_of(function: Any, rng: random.Random) -> tuple[tuple[Any, ...], dict[str, Any]]:
    name = function.__name__
    size = tuple(extent(rng) for _ in range(rng.randrange(4)))
    dtype = rng.choice((torch.float32, torch.int64, torch.bool)) if "bit" in name or name.strip("_")[0] == "i" else torch.float32
    x = tensor(rng, size, dtype)
    if name.rstrip("_") in _ONE:
        return (x,), {}
    other: Any = tensor(rng, tuple(n if rng.random() < 0.7 else 1 for n in size), dtype)
    if rng.random() < 0.3:
        other = rng.choice((2, 0.5, True, 2**40, 1j, None))
    if name == "masked_fill_":
        return (x, tensor(rng, size, torch.bool), other), {}
    if name == "clamp_":
        return (x,), {"min": 0.0} if rng.random() < 0.5 else {"max": 2}
    if name == "fill_":
        return (x, rng.choice((1, 0.5, tensor(rng, ())))), {}
    if name == "add_" and rng.random() < 0.3:
        return (x, other), {"alpha": 2}
    return (x, other), {}


@pytest.mark.parametrize("number", list(_WRITES), ids=[f"{each.__name__}" for each in _WRITES.values()])  # type: ignore[attr-defined]
def test_a_rule_foresees_the_write_that_torch_does(number: int) -> None:
    function: Any = _WRITES[number]
    rng, answered = random.Random(function.__name__), 0
    for _ in range(60):
        args, kwargs = call_of(function, rng)
        mode = FakeTensorMode()
        fakes = pytree.tree_map_only(torch.Tensor, mode.from_tensor, args)
        propagation = Propagation(mode)
        with torch.no_grad():
            if foresee_write(function, fakes, kwargs, propagation.tensor_key) is None:
                continue
            before, known, count = propagation.states(fakes), layouts(args[0]), args[0]._version
            real, fake = outcome(function, args, kwargs), outcome(function, fakes, kwargs)
        shown = f"{function.__name__} of {pytree.tree_map_only(torch.Tensor, layouts, args)} {kwargs}"
        assert real is args[0] and fake is fakes[0], f"{shown}: {real}, {fake}"
        after = Propagation(mode).states(fakes)
        assert after[0] == (before[0][0], before[0][1] + 1) and after[1:] == before[1:], shown
        assert layouts(args[0]) == known and args[0]._version == count + 1, shown
        answered += 1
    assert answered >= 3


def test_writes_that_no_rule_foresees() -> None:
    mode = FakeTensorMode()

    def asked(function: Any, *args: Any, **kwargs: Any) -> Any:
        fakes, named = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        return foresee_write(function, fakes, named, Propagation(mode).tensor_key)

    x = torch.ones(2, 3)
    assert asked(operator.iadd, x, x) == (WRITTEN, 0) and asked(torch.Tensor.add_, x, 1) == (WRITTEN, 0)
    assert asked(torch.Tensor.add_, x[:1], x) is None  # the result is larger
    assert asked(torch.Tensor.add_, x[:1].expand(2, 3), 1) is None
    assert asked(torch.Tensor.add_, torch.ones(2, dtype=torch.int64), 0.5) is None
    assert asked(operator.iadd, 1, x) is None and asked(operator.iadd, [1], [2]) is None
    assert asked(torch.Tensor.t_, x) is None and asked(torch.Tensor.resize_, x, (1,)) is None


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(3))
        self.table = torch.nn.Parameter(torch.randn(4, 3, 2))

    def forward(self, x: torch.Tensor) -> Any:
        wide = self.scale.reshape(1, -1, 1)
        first, second = self.table.transpose(-2, -1).chunk(2, 0)
        free = self.scale.detach().reshape(3, 1)
        with torch.enable_grad():
            again = wide * 2
        copy = self.table.transpose(0, 1).reshape(-1)
        shown = [(each.requires_grad, each.is_leaf, each.grad_fn is None)
                 for each in (wide, first, second, free, again, copy, self.table[0])]
        x = x + wide
        x += second[0, 0]
        x.mul_(free.view(1, 3, 1))
        return x, wide, first, copy, shown


@pytest.mark.parametrize("grad", [False, True])
def test_views_of_parameters(grad: bool) -> None:
    module = Scaled()
    compiled = stator.compile(module, backend="eager", fullgraph=True)
    for size in ((2, 3, 3), (2, 3, 3), (4, 3, 3)):
        x = torch.randn(size)
        with torch.set_grad_enabled(grad):
            found, expected = compiled(x), module(x)
        assert found[-1] == expected[-1]
        for one, other in zip(found[:-1], expected[:-1], strict=True):
            assert torch.equal(one, other) and layouts(one) == layouts(other)
            assert (one.requires_grad, one.is_leaf) == (other.requires_grad, other.is_leaf)
            assert (one._base is None) == (other._base is None)


def test_a_view_made_without_gradients_is_written_to() -> None:
    def writes(p: torch.Tensor, x: torch.Tensor) -> Any:
        with torch.no_grad():
            row = p.view(-1)
            row += 1
            p.reshape(3, 2).mul_(2)
            twice = row * 2
        return (p * x).sum(), twice

    for size in ((2, 3), (2, 3)):
        one, other = (torch.nn.Parameter(torch.ones(size)) for _ in range(2))
        x = torch.randn(size)
        found, expected = stator.compile(writes, backend="eager")(one, x), writes(other, x)
        assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1]) and torch.equal(one, other)
        found[0].backward()
        expected[0].backward()
        assert torch.equal(one.grad, other.grad)  # type: ignore[arg-type]
