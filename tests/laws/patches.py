"""Programs beside what can be patched under them: (owner, attribute, replacement, program), for differential tests."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

LOG: list[str] = []  # one entry a call of a replacement


@dataclass
class Patch:
    name: str
    owner: Any
    attribute: str
    replace: Callable[[Any], Any]  # the original -> what stands in its place
    program: Callable[..., Any]

    def original(self) -> Any:
        return getattr(self.owner, self.attribute, None)

    def apply(self) -> Callable[[], None]:
        """Patch; answer how to undo it."""
        own = vars(self.owner)
        had, raw = self.attribute in own, own.get(self.attribute)
        setattr(self.owner, self.attribute, self.replace(self.original()))

        def undo() -> None:
            if had:
                setattr(self.owner, self.attribute, raw)
            else:
                delattr(self.owner, self.attribute)
        return undo


def scaled(old: Any) -> Any:
    def patched(*args: Any, **kwargs: Any) -> Any:
        LOG.append("scaled")
        return old(*args, **kwargs) * 10
    return patched


def counted(old: Any) -> Any:
    def patched(*args: Any, **kwargs: Any) -> Any:
        LOG.append("counted")
        return old(*args, **kwargs)
    return patched


def answering(value: Any) -> Any:
    def replace(old: Any) -> Any:
        def patched(*args: Any, **kwargs: Any) -> Any:
            LOG.append("answering")
            return value
        return patched
    return replace


def as_property(read: Any) -> Any:
    def replace(old: Any) -> Any:
        def patched(self: Any) -> Any:
            LOG.append("property")
            return read(self, old)
        return property(patched)
    return replace


def _iadd(x):
    y = x.clone()
    y += 1
    return y


def _setitem(x):
    y = x.clone()
    y[0] = 7.0
    return y


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x) + 1


class Plain:
    def __init__(self) -> None:
        self.k = 2

    def scale(self, x):
        return x * self.k

    @classmethod
    def made(cls, x):
        return x + 1

    @staticmethod
    def static(x):
        return x + 2

    @property
    def bias(self):
        return 5


class Items(list):
    def total(self):
        return sum(self)


class Table(dict):
    def first(self):
        return next(iter(self.values()))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


NET = Net()
PLAIN = Plain()
INDEX = torch.tensor(1)
held_relu = torch.Tensor.relu
held_torch_relu = torch.relu
held_add = torch.Tensor.__add__

T = torch.Tensor
PATCHES = [
    Patch("relu", T, "relu", scaled, lambda x: x.relu() + 1),
    Patch("relu with the original", T, "relu", scaled, lambda x: x.relu() + held_relu(x)),
    Patch("add", T, "add", scaled, lambda x: x.add(1)),
    Patch("view", T, "view", counted, lambda x: x.view(-1) + 1),
    Patch("size", T, "size", counted, lambda x: x + x.size(0)),
    Patch("dim", T, "dim", answering(7), lambda x: x * x.dim()),
    Patch("item", T, "item", answering(3.0), lambda x: x * x.sum().item()),
    Patch("detach", T, "detach", counted, lambda x: x.detach() * 2),
    Patch("clone", T, "clone", scaled, lambda x: x.clone() * 2),
    Patch("sum", T, "sum", scaled, lambda x: x.sum(0)),
    Patch("to", T, "to", counted, lambda x: x.to(torch.float64)),
    Patch("copy_", T, "copy_", counted, lambda x: x.clone().copy_(x + 1)),
    Patch("add_", T, "add_", counted, lambda x: x.clone().add_(1)),
    Patch("tolist", T, "tolist", answering([1, 2]), lambda x: x * x.tolist()[0]),
    Patch("__add__", T, "__add__", scaled, lambda x: x + 1),
    Patch("__add__ with the original", T, "__add__", scaled, lambda x: held_add(x, 1) + 1),
    Patch("__radd__", T, "__radd__", scaled, lambda x: 1 + x),
    Patch("__radd__ of sum", T, "__radd__", scaled, lambda x: sum([x, x])),
    Patch("__add__ of sum", T, "__add__", scaled, lambda x: sum([x, x])),
    Patch("__mul__", T, "__mul__", lambda old: lambda s, o: (LOG.append("mul"), old(s, o) + 100)[1], lambda x: x * 3),
    Patch("__mul__ by operator", T, "__mul__", lambda old: lambda s, o: (LOG.append("mul"), old(s, o) + 100)[1],
          lambda x: operator.mul(x, 3)),
    Patch("__matmul__", T, "__matmul__", scaled, lambda x: x @ x.T),
    Patch("__iadd__", T, "__iadd__", scaled, _iadd),
    Patch("__neg__", T, "__neg__", scaled, lambda x: -x),
    Patch("__invert__", T, "__invert__", counted, lambda x: ~(x > 0)),
    Patch("__pow__", T, "__pow__", scaled, lambda x: x ** 2),
    Patch("__rsub__", T, "__rsub__", scaled, lambda x: 1 - x),
    Patch("__abs__", T, "__abs__", scaled, lambda x: abs(x)),
    Patch("__eq__", T, "__eq__", counted, lambda x: x == 1),
    Patch("__eq__ answers", T, "__eq__", answering(False), lambda x: x + 1 if x == x else x - 1),
    Patch("__lt__", T, "__lt__", counted, lambda x: x < 1),
    Patch("__gt__ swapped", T, "__gt__", counted, lambda x: 1 < x),
    Patch("__hash__", T, "__hash__", answering(5), lambda x: x + hash(x)),
    Patch("__hash__ of a key", T, "__hash__", answering(5), lambda x: {x: 1}[x] + x),
    Patch("__len__", T, "__len__", answering(9), lambda x: x + len(x)),
    Patch("__float__", T, "__float__", answering(2.5), lambda x: x + float(x.sum())),
    Patch("__int__", T, "__int__", answering(4), lambda x: x + int(x.sum())),
    Patch("__complex__", T, "__complex__", answering(2j), lambda x: x + complex(x.sum())),
    Patch("__bool__", T, "__bool__", answering(True), lambda x: x + 1 if (x.sum() > 1e9) else x - 1),
    Patch("__bool__ of not", T, "__bool__", answering(True), lambda x: x + 1 if not (x.sum() > 1e9) else x - 1),
    Patch("__bool__ of bool", T, "__bool__", answering(True), lambda x: x * bool(x.sum() > 1e9)),
    Patch("__bool__ of any", T, "__bool__", answering(True), lambda x: x * any([x.sum() > 1e9])),
    Patch("__bool__ of filter", T, "__bool__", answering(True), lambda x: x * len(list(filter(None, [x.sum() > 1e9])))),
    Patch("__index__ of a list", T, "__index__", answering(0), lambda x: x + [5, 6][INDEX]),
    Patch("__index__ of range", T, "__index__", answering(2), lambda x: x + len(range(INDEX))),
    Patch("__index__ of slices", T, "__index__", answering(0), lambda x: x + len([1, 2, 3][INDEX:])),
    Patch("__index__ by operator", T, "__index__", answering(0), lambda x: x + operator.index(INDEX)),
    Patch("__iter__", T, "__iter__", lambda old: lambda s: (LOG.append("iter"), iter([s, s]))[1],
          lambda x: [r + 1 for r in x]),
    Patch("__iter__ of list", T, "__iter__", lambda old: lambda s: (LOG.append("iter"), iter([s, s]))[1],
          lambda x: len(list(x)) + x),
    Patch("__iter__ unpacked", T, "__iter__", lambda old: lambda s: (LOG.append("iter"), iter([s, s]))[1],
          lambda x: (lambda a, b: a - b)(*x)),
    Patch("__iter__ of zip", T, "__iter__", lambda old: lambda s: (LOG.append("iter"), iter([s, s]))[1],
          lambda x: [a + b for a, b in zip(x, x, strict=True)]),
    Patch("__contains__", T, "__contains__", answering(True), lambda x: x + (1e9 in x)),
    Patch("__getitem__", T, "__getitem__", scaled, lambda x: x[0]),
    Patch("__getitem__ of a slice", T, "__getitem__", scaled, lambda x: x[:, 1:]),
    Patch("__setitem__", T, "__setitem__", counted, _setitem),
    Patch("__reversed__", T, "__reversed__", scaled, lambda x: reversed(x)),
    Patch("__repr__", T, "__repr__", answering("tensor!"), lambda x: (x + 1, repr(x))),
    Patch("__str__", T, "__str__", answering("tensor!"), lambda x: (x + 1, str(x))),
    Patch("__format__", T, "__format__", answering("text!"), lambda x: (x + 1, f"{x}")),
    Patch("__array__", T, "__array__", answering(np.ones(3)), lambda x: (x + 1, np.asarray(x))),
    Patch("__getattr__", T, "__getattr__", lambda old: lambda s, name: (LOG.append(name), 3)[1],
          lambda x: x + getattr(x, "no_such_name", 1)),
    Patch("__setattr__", T, "__setattr__", lambda old: lambda s, name, v: (LOG.append(name), old(s, name, v))[1],
          lambda x: (setattr(y := x + 1, "note", 3), y)[1]),
    Patch("shape", T, "shape", as_property(lambda s, old: (4, 4)), lambda x: x + x.shape[0]),
    Patch("T", T, "T", as_property(lambda s, old: old.__get__(s) * 10), lambda x: x.T + 1),
    Patch("device", T, "device", as_property(lambda s, old: "nowhere"), lambda x: (x + 1, x.device)),
    Patch("dtype", T, "dtype", as_property(lambda s, old: old.__get__(s)), lambda x: (x + 1, x.dtype)),
    Patch("grad", T, "requires_grad", as_property(lambda s, old: True), lambda x: x + 1 if x.requires_grad else x),
    Patch("is_cuda", T, "is_cuda", as_property(lambda s, old: True), lambda x: x + 1 if x.is_cuda else x),
    Patch("a new method", T, "my_new_method", lambda old: lambda s: (LOG.append("new"), s + 3)[1],
          lambda x: x.my_new_method() if hasattr(x, "my_new_method") else x),
    Patch("a new property", T, "my_value", as_property(lambda s, old: s + 3),
          lambda x: getattr(x, "my_value", x)),
    Patch("torch.relu", torch, "relu", scaled, lambda x: torch.relu(x)),
    Patch("torch.relu with the original", torch, "relu", scaled, lambda x: torch.relu(x) + held_torch_relu(x)),
    Patch("torch.add", torch, "add", scaled, lambda x: torch.add(x, 1)),
    Patch("torch.empty_like", torch, "empty_like", counted, lambda x: torch.empty_like(x).fill_(1)),
    Patch("torch.zeros", torch, "zeros", counted, lambda x: torch.zeros(3) + x),
    Patch("torch.tensor", torch, "tensor", counted, lambda x: torch.tensor([1.0]) + x),
    Patch("torch.is_tensor", torch, "is_tensor", counted, lambda x: x + torch.is_tensor(x)),
    Patch("torch.is_grad_enabled", torch, "is_grad_enabled", counted, lambda x: x + torch.is_grad_enabled()),
    Patch("torch.no_grad", torch.no_grad, "__enter__", counted, lambda x: _no_grad(x)),
    Patch("torch.cuda.is_available", torch.cuda, "is_available", answering(True),
          lambda x: x + 1 if torch.cuda.is_available() else x),
    Patch("torch.load", torch, "load", answering({"a": 1}), lambda x: x + torch.load("nowhere")["a"]),
    Patch("F.relu", F, "relu", scaled, lambda x: F.relu(x)),
    Patch("F.linear", F, "linear", scaled, lambda x: NET(x)),
    Patch("F.gelu", F, "gelu", scaled, lambda x: F.gelu(x)),
    Patch("F.dropout", F, "dropout", scaled, lambda x: F.dropout(x, 0.5, False)),
    Patch("attention", F, "scaled_dot_product_attention", scaled,
          lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None])),
    Patch("torch._C._nn.gelu", torch._C._nn, "gelu", scaled, lambda x: torch._C._nn.gelu(x)),
    Patch("nn.Module.__call__", nn.Module, "__call__", scaled, lambda x: NET(x)),
    Patch("nn.Module.__getattr__", nn.Module, "__getattr__", counted, lambda x: NET(x)),
    Patch("nn.Module.__setattr__", nn.Module, "__setattr__", counted, lambda x: (setattr(NET, "note", 1), NET(x))[1]),
    Patch("nn.Linear.forward", nn.Linear, "forward", scaled, lambda x: NET(x)),
    Patch("instance forward", NET.linear, "forward", scaled, lambda x: NET(x)),
    Patch("class method", Plain, "scale", scaled, lambda x: PLAIN.scale(x)),
    Patch("instance method", PLAIN, "scale", scaled, lambda x: PLAIN.scale(x)),
    Patch("classmethod", Plain, "made", lambda old: classmethod(lambda cls, x: scaled(old)(x)), lambda x: PLAIN.made(x)),
    Patch("staticmethod", Plain, "static", lambda old: staticmethod(scaled(old)), lambda x: Plain.static(x)),
    Patch("property", Plain, "bias", as_property(lambda s, old: 7), lambda x: x + PLAIN.bias),
    Patch("list subclass", Items, "append", lambda old: lambda s, v: (LOG.append("a"), old(s, v * 2))[1],
          lambda x: (items := Items(), items.append(x), items[0])[2]),
    Patch("list subclass total", Items, "total", scaled, lambda x: Items([x, x]).total()),
    Patch("dict subclass", Table, "__getitem__", scaled, lambda x: Table(a=x)["a"]),
    Patch("Function.forward", Doubled, "forward", lambda old: staticmethod(scaled(old)), lambda x: Doubled.apply(x)),
    Patch("builtins.len", builtins, "len", counted, lambda x: x + len([1, 2])),
    Patch("builtins.print", builtins, "print", answering(None), lambda x: (print("shown"), x + 1)[1]),
    Patch("math.sqrt", math, "sqrt", answering(3.0), lambda x: x * math.sqrt(4)),
    Patch("operator.add", operator, "add", scaled, lambda x: operator.add(x, 1)),
    Patch("operator.add of +", operator, "add", scaled, lambda x: x + 1),
    Patch("np.sqrt", np, "sqrt", answering(3.0), lambda x: x * float(np.sqrt(4.0))),
    Patch("np.ones", np, "ones", counted, lambda x: x + torch.from_numpy(np.ones(3))),
    Patch("SGD.step", torch.optim.SGD, "step", counted, lambda x: _sgd(x)),
    Patch("backward", T, "backward", counted, lambda x: _backward(x)),
    Patch("aten.relu", torch.ops.aten.relu, "default", scaled, lambda x: torch.ops.aten.relu.default(x)),
    Patch("aten packet", torch.ops.aten, "relu", scaled, lambda x: torch.ops.aten.relu(x)),
]


def _no_grad(x):
    with torch.no_grad():
        return x * 2


def _sgd(x):
    parameter = nn.Parameter(torch.ones(3))
    optimiser = torch.optim.SGD([parameter], lr=0.1)
    parameter.grad = x[0]
    optimiser.step()
    return parameter.detach()


def _backward(x):
    leaf = x.detach().clone().requires_grad_()
    (leaf * 2).sum().backward()
    return leaf.grad
