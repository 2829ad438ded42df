"""Sizes of wrapper subclasses that change: symbols of the outer tensor and of the inner ones, related where they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

import stator
from stator import events


class Halves(torch.Tensor):
    """Rows that lie in memory as twice as many rows of half the width: no inner size is an outer one."""

    @staticmethod
    def __new__(cls, rows: torch.Tensor) -> Any:
        shape = (rows.shape[0] // 2, rows.shape[1] * 2)
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=rows.dtype, device=rows.device,
                                                   requires_grad=rows.requires_grad)

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def __tensor_flatten__(self) -> Any:
        return ["rows"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Halves(inner["rows"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = pytree.tree_map_only(Halves, lambda each: each.rows.reshape(each.shape), (args, kwargs or {}))
        out = func(*plain[0], **plain[1])
        if func in (torch.ops.aten.mul.Tensor, torch.ops.aten.sin.default, torch.ops.aten.detach.default):
            return Halves(out.reshape(out.shape[0] * 2, out.shape[1] // 2))
        return out


def two(rows: int, columns: int = 4, grad: bool = False) -> TwoTensor:
    base = torch.arange(rows * columns * 1.0).view(rows, columns) / 7
    return TwoTensor(base, base.cos()).requires_grad_(grad)


def halves(rows: int, columns: int = 4, grad: bool = False) -> Halves:
    return Halves(torch.arange(rows * columns * 1.0).view(rows * 2, columns // 2) / 7)


def computed(x: Any) -> Any:
    return (x * 2).sin() * x.shape[0]


def reduced(x: Any) -> Any:
    return (x * x).sum(0), x.shape[0] + x.shape[1]


def viewed(x: Any) -> Any:
    return x.view(-1), (x @ x.t()).relu(), x.a.shape[0] + 1


def sliced(x: Any) -> Any:
    y = x[1:]
    return y.reshape(y.shape[0] * 4), torch.cat([x, y])


def parts(x: Any) -> Any:
    return x.a + 1, x.b * x.shape[0]


def made_inside(x: Any) -> Any:
    return TwoTensor(x.a * 2, x.b + x.shape[0]) * 3


def with_plain(x: Any) -> Any:
    return x + torch.ones(x.shape[0], 1), x.size()


def branching(x: Any) -> Any:
    return x * 2 if x.shape[0] > 5 else x - 1


def described(value: Any) -> Any:
    if isinstance(value, TwoTensor):
        return "two", tuple(value.shape), described(value.a), described(value.b)
    if isinstance(value, Halves):
        return "halves", tuple(value.shape), described(value.rows)
    if isinstance(value, torch.Tensor):
        return type(value), [round(each, 4) for each in value.detach().reshape(-1).tolist()], tuple(value.shape)
    if isinstance(value, (tuple, list)):
        return type(value), [described(each) for each in value]
    return value


def outcome(function: Any, x: Any) -> Any:
    value = function(x)
    first = value[0] if type(value) is tuple else value
    if not first.requires_grad:
        return described(value), None
    first.sum().backward()
    return described(value), described(x.grad)


CASES = [(computed, two), (reduced, two), (viewed, two), (sliced, two), (parts, two), (made_inside, two),
         (with_plain, two), (branching, two), (computed, halves), (reduced, halves)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize(("function", "make"), CASES, ids=lambda each: each.__name__)
def test_sizes_that_change(function: Any, make: Any, grad: bool, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    compiled = stator.compile(function, backend=backend)
    for number, rows in enumerate((3, 6, 7, 9, 12)):
        with events.record() as log:
            found = outcome(compiled, make(rows, grad=grad))
        assert found == outcome(function, make(rows, grad=grad)), rows
        assert not [event for event in log if isinstance(event, events.GraphBreak)]
        captures = sum(isinstance(event, events.CaptureFinished) for event in log)
        assert captures == (number < 2), number


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("way", ["dynamic", "mark", "maybe"])
def test_open_from_the_start(way: str, backend: str) -> None:
    compiled = stator.compile(computed, backend=backend, dynamic=True if way == "dynamic" else None, fullgraph=True)
    captures = 0
    for rows in (3, 5, 8):
        x = two(rows)
        if way != "dynamic":
            (stator.mark_dynamic if way == "mark" else stator.maybe_mark_dynamic)(x, 0)
        with events.record() as log:
            assert described(compiled(x)) == described(computed(two(rows)))
        captures += sum(isinstance(event, events.CaptureFinished) for event in log)
    assert captures == 1


def test_a_backend_that_cannot_live_with_them() -> None:
    """It gets constants, from then on."""
    seen = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(bool(inputs[0]._has_symbolic_sizes_strides))
        if seen[-1]:
            raise NotImplementedError("open sizes")
        return graph

    compiled = stator.compile(computed, backend=backend)
    for rows in (3, 5, 7):
        assert described(compiled(two(rows))) == described(computed(two(rows)))
    assert seen == [False, True, False, False]


def test_inner_sizes_that_part_ways() -> None:
    """An inner size that was the outer one's, and is not any more: the relation is guarded."""
    class Loose(TwoTensor):
        @staticmethod
        def __new__(cls, a: torch.Tensor, b: torch.Tensor, rows: int = 0) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, device=a.device)

        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
            return Loose(inner["a"], inner["b"])

    def read(x: Any) -> Any:
        return x.a * x.shape[0], x.b * x.b.shape[0]

    compiled = stator.compile(read, backend="eager")
    for first, second in ((3, 3), (5, 5), (6, 6), (6, 2), (7, 4), (8, 8)):
        make = lambda: Loose(torch.ones(first, 4), torch.ones(second, 4))  # noqa: B023
        assert described(compiled(make())) == described(read(make())), (first, second)


def test_a_mark_that_does_not_hold() -> None:
    def constant(x: Any) -> Any:
        return x * 2 if x.shape[0] == 3 else x

    x = two(3)
    stator.mark_dynamic(x, 0)
    with pytest.raises(stator.StatorError, match=r"x\.size\(0\)"):
        stator.compile(constant, backend="eager")(x)
