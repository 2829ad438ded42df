"""Subclasses of Parameter as parameters of modules: traced as the parameters they are, with what they add."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.overrides

import stator


class Scaled(torch.nn.Parameter):
    """A parameter with an attribute, a method and a property."""

    def __new__(cls, data: torch.Tensor, factor: float) -> Any:
        made = super().__new__(cls, data)
        made.factor = factor
        return made

    def scaled(self) -> torch.Tensor:
        return self * self.factor

    @property
    def halved(self) -> torch.Tensor:
        return self.detach() / 2


class Other(Scaled):
    pass


class Adding(torch.nn.Parameter):
    def __add__(self, other: Any) -> Any:
        return torch.Tensor.__mul__(self, other)


class Net(torch.nn.Module):
    def __init__(self, weight: torch.nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> Any:
        weight = self.weight
        kinds = (type(weight).__name__, isinstance(weight, Scaled), isinstance(weight, Other),
                 isinstance(weight, torch.nn.Parameter), isinstance(weight, torch.Tensor), type(weight + 1).__name__)
        return torch.mm(x, weight.scaled()) + weight.halved, kinds, weight, [type(p) for p in self.parameters()]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_subclass_is_a_parameter_with_more(backend: str) -> None:
    x = torch.randn(2, 2)
    net = Net(Scaled(torch.randn(2, 2), 2.0))
    compiled = stator.compile(net, backend=backend, fullgraph=True)
    for change in (lambda: None, lambda: setattr(net.weight, "factor", 5.0),
                   lambda: setattr(net, "weight", Other(torch.randn(2, 2), 3.0))):
        change()
        expected, kinds, _, classes = net(x)
        found, seen, weight, found_classes = compiled(x)
        torch.testing.assert_close(found, expected)
        assert seen == kinds and weight is net.weight and found_classes == classes and type(found) is torch.Tensor
        gradients = [torch.autograd.grad(out.sum(), net.weight)[0] for out in (expected, found)]
        torch.testing.assert_close(*gradients)


def test_a_class_that_replaces_an_operation_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(p: Any) -> Any:
        return p + 3

    compiled = stator.compile(add, backend="aot_eager")  # whose graph does not ask the class
    weight = Scaled(torch.ones(2), 2.0)
    torch.testing.assert_close(compiled(Adding(torch.ones(2))), torch.full((2,), 3.0))
    torch.testing.assert_close(compiled(weight), torch.full((2,), 4.0))
    monkeypatch.setattr(Scaled, "__add__", Adding.__add__, raising=False)
    torch.testing.assert_close(compiled(weight), torch.full((2,), 3.0))
    whole = stator.compile(lambda p: (p * 2, p + 3), backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(weight), (torch.full((2,), 2.0), torch.full((2,), 3.0)))


class Asking(torch.overrides.TorchFunctionMode):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((func.__name__, tuple(kind.__name__ for kind in types)))
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_what_a_subclass_does() -> None:
    weight, x = Scaled(torch.randn(2, 2), 2.0), torch.randn(2, 2)

    def use() -> Any:
        return torch.mm(x, weight.scaled()) + weight.halved, torch.nn.functional.relu(weight), weight.shape, weight.T

    expected, found = Asking(), Asking()
    with expected:
        values = use()
    with found:
        same = stator.compile(use, backend="eager", fullgraph=True)()
    assert found.seen == expected.seen
    torch.testing.assert_close(same, values)


class Opaque(torch.Tensor):
    """A class that no fake stands for: it has a `__torch_dispatch__`, and cannot be taken apart."""

    @staticmethod
    def __new__(cls, data: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, data.shape, dtype=data.dtype, requires_grad=data.requires_grad)
        made.data_inside = data
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return Opaque(args[0].data_inside)
        raise NotImplementedError(func)


def test_a_parameter_of_a_class_without_a_fake_is_one() -> None:
    def asked(p: Any) -> Any:
        return isinstance(p, torch.nn.Parameter), isinstance(p, torch.nn.Buffer), isinstance(p, torch.Tensor)

    compiled = stator.compile(asked, backend="eager")
    plain = Opaque(torch.ones(3))
    for value in (torch.nn.Parameter(plain), plain, torch.nn.Buffer(plain), 3, torch.nn.Parameter(torch.ones(2))):
        assert compiled(value) == asked(value)
