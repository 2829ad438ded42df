"""Patches that a careful program would not write, beside eager: odd replacements, and patches of names nobody calls.

In:  (attribute of Tensor, replacement, program), phases of `test_patched_methods`.
Out: value or exception of each call, and how often each replacement ran.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from types import FunctionType, GetSetDescriptorType
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from patches import LOG, Patch, answering, counted, scaled
from test_patched_methods import inside, outcomes, shown
from torch import nn
from torch.nn import functional as F

import stator
from stator import events

T, BASE = torch.Tensor, torch._C.TensorBase
INDEX = torch.tensor(1)


class Descriptor:
    """Answers with a bound function, and counts how often it is asked."""

    def __init__(self, old: Any) -> None:
        self.old = old

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        LOG.append("get")
        return lambda *args: self.old(instance, *args)


class Called:
    def __call__(self, *args: Any) -> Any:
        LOG.append(f"called with {len(args)}")
        return torch.ones(2)


REPLACEMENTS: dict[str, Callable[[Any], Any]] = {
    "another method": lambda old: T.sigmoid, "C function": lambda old: torch.sigmoid, "number": lambda old: 5,
    "partialmethod": lambda old: functools.partialmethod(T.clamp, min=0.5), "None": lambda old: None,
    "partial": lambda old: functools.partial(torch.sigmoid), "descriptor": Descriptor, "callable": lambda old: Called(),
    "staticmethod": lambda old: staticmethod(lambda *args: (LOG.append(str(len(args))), torch.ones(2))[1]),
    "classmethod": lambda old: classmethod(lambda cls: (LOG.append(cls.__name__), torch.ones(2))[1]),
    "property": lambda old: property(lambda self: (LOG.append("property"), lambda: self * 3)[1]),
    "module": lambda old: nn.Sigmoid(), "tensor": lambda old: torch.ones(2), "mock": lambda old: mock.Mock(
        wraps=lambda *args: torch.ones(2)), "without gradients": lambda old: torch.no_grad()(scaled(old)),
}
ATTRIBUTES: dict[str, Callable[..., Any]] = {
    "relu": lambda x: x.relu(), "__neg__": lambda x: -x, "__len__": lambda x: x + len(x)}


def asserts(x):
    if not x.sum() > -99:
        raise AssertionError("small")
    return x + 1


def deletes(x):
    y = x + 1
    y.note = 1
    del y.note
    return y


def gradient(x):
    leaf = x.detach().clone().requires_grad_()
    (leaf * leaf).sum().backward()
    return leaf.grad


def hooked(x):
    leaf = x.detach().clone().requires_grad_()
    y = leaf * 2
    y.register_hook(lambda grad: grad * 3)
    y.sum().backward()
    return leaf.grad


def as_before(old: Any) -> Any:
    return property(lambda self: (LOG.append("read"), old.__get__(self))[1],
                    lambda self, value: (LOG.append("written"), old.__set__(self, value))[1])


PATCHES = [
    Patch("layer_norm of torch behind that of nn", torch, "layer_norm", scaled, lambda x: F.layer_norm(x, (3,))),
    Patch("norm of torch behind the method", torch, "norm", scaled, lambda x: x.norm()),
    Patch("vector_norm behind two functions", torch.linalg, "vector_norm", scaled, lambda x: x.norm()),
    Patch("pad behind stft", F, "pad", scaled, lambda x: torch.stft(x.flatten(), 4, return_complex=True).abs()),
    Patch("smooth_l1_loss of C++", torch._C._nn, "smooth_l1_loss", scaled, lambda x: F.smooth_l1_loss(x, x + 1)),
    Patch("einsum of torch.functional", torch.functional, "einsum", scaled, lambda x: torch.einsum("ij,ij->", x, x)),
    Patch("repr of a new parameter", torch.nn.Parameter, "__repr__", answering("P"),
          lambda x: repr(torch.nn.Parameter(x))),
    Patch("new parameters", torch.nn.Parameter, "__new__", lambda old: staticmethod(lambda cls, data: data * 2),
          lambda x: torch.nn.Parameter(x) + 1),
    *(Patch(f"{name} as {kind}", T, name, replace, program)
      for kind, replace in REPLACEMENTS.items() for name, program in ATTRIBUTES.items()),
    Patch("bool of an assertion", T, "__bool__", answering(False), asserts),
    Patch("delattr", T, "__delattr__", lambda old: lambda self, name: (LOG.append(name), old(self, name))[1], deletes),
    Patch("index that repeats", T, "__index__", answering(2), lambda x: len([1] * INDEX) + x),
    Patch("index of islice", T, "__index__", answering(2), lambda x: x + len(list(itertools.islice([1, 2, 3], INDEX)))),
    Patch("round", T, "__round__", answering(7), lambda x: x + round(x.sum())),
    Patch("hash that is no int", T, "__hash__", answering("a"), lambda x: x + (hash(x) == 0)),
    Patch("__init_subclass__", T, "__init_subclass__", lambda old: classmethod(lambda cls: LOG.append("made")),
          lambda x: (type("Made", (T,), {}), x + 1)[1]),
    Patch("reciprocal behind /", T, "reciprocal", scaled, lambda x: 1 / (x + 9)),
    Patch("numpy behind asarray", T, "numpy", counted, lambda x: np.asarray(x) + 1),
    Patch("numpy", T, "numpy", counted, lambda x: (x + 1).numpy()),
    Patch("item", T, "item", counted, lambda x: (x + 1, x.sum().item())),
    Patch("register_hook", T, "register_hook", counted, hooked),
    Patch("requires_grad_", T, "requires_grad_", counted, gradient),
    Patch("grad", T, "grad", as_before, gradient),
    Patch("imag", T, "imag", as_before, lambda x: x.imag),
    Patch("name", T, "name", as_before, lambda x: ((x + 1).name, x * 2)),
    Patch("_python_dispatch", T, "_python_dispatch", as_before, lambda x: ((x + 1)._python_dispatch, x * 2)),
]


@pytest.mark.parametrize(("backend", "phase"), [("eager", "between"), ("aot_eager", "taken back")])
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_is_as_in_eager(patch: Patch, phase: str, backend: str) -> None:
    expected = outcomes(patch, phase, lambda fn: fn)
    with events.record() as log:
        assert outcomes(patch, phase, lambda fn: stator.compile(fn, backend=backend)) == expected
    assert not [event.error for event in log if isinstance(event, events.InternalFailure)]


@pytest.mark.parametrize("patch", PATCHES[-18:], ids=lambda patch: patch.name)
def test_is_as_in_eager_where_the_program_patches(patch: Patch) -> None:
    program, x = inside(patch), torch.arange(6.0).reshape(2, 3) - 2

    def called(function: Any) -> Any:
        start = len(LOG)
        try:
            value = function(x)
        except Exception as error:
            value = error
        return shown(value), LOG[start:]

    assert called(stator.compile(program, backend="eager")) == called(program)


# ---------------------------------------------------------------------- every member at once, in a call that hits


def members() -> Iterator[tuple[str, Any]]:
    """Members that torch's and Stator's own code may use by name when a compiled graph runs."""
    skipped = ("_make_subclass", "_make_wrapper_subclass", "_make_dtensor", "_view_func")
    for name in dir(BASE):
        entry = vars(BASE).get(name)
        if name.startswith("__") or name in skipped or isinstance(entry, (staticmethod, type(None))):
            continue
        yield name, entry
    for name, entry in list(vars(T).items()):
        if type(entry) is FunctionType and not name.startswith("__"):
            yield name, entry


@contextlib.contextmanager
def everything_counted() -> Iterator[None]:
    before = dict(vars(T))
    names = []

    def replacement(name: str, entry: Any) -> Any:
        if type(entry) is GetSetDescriptorType:
            return property(lambda self: (LOG.append(name), entry.__get__(self))[1],
                            lambda self, value: (LOG.append(name), entry.__set__(self, value))[1])
        return lambda *args, **kwargs: (LOG.append(name), entry(*args, **kwargs))[1]

    for name, entry in dict(members()).items():
        if type(entry) is not GetSetDescriptorType or not name.startswith("_"):
            setattr(T, name, replacement(name, entry))
            names.append(name)
    try:
        yield
    finally:
        for name in names:
            setattr(T, name, before[name]) if name in before else delattr(T, name)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm, self.drop = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.drop(self.norm(self.linear(x)))


def writes(x):
    x[0] = 1
    x += 1
    return x * 2, x


def broken(x):
    y = x * 2
    stator.graph_break()
    return y + 1


def resized(x):
    y = x.detach().clone()
    y.resize_(3)
    return y


PROGRAMS: dict[str, Callable[[], Any]] = {
    "plain": lambda: lambda x: x * 2 + 1, "writes": lambda: writes, "break": lambda: broken, "module": Net,
    "module that is evaluated": lambda: Net().eval(), "aliases": lambda: lambda x: (x, x[0], (x * 2)[0]),
    "numbers": lambda: lambda x: (x + 1, float(x.sum()), bool(x.sum() > 0)), "resized": lambda: resized,
    "results twice": lambda: lambda x: ((y := x * 2), y, [y]), "drawn": lambda: lambda x: x + torch.rand(3),
    "array": lambda: lambda x: (np.asarray(x.detach()) + 1, x * 2),
    "flag": lambda: lambda x: operator.mul(x.requires_grad_(), 2),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_code_around_a_graph_runs_past_patches(name: str, backend: str, grad: bool) -> None:
    def seen(compiler: Callable[[Any], Any]) -> list[Any]:
        subject = compiler(PROGRAMS[name]())
        found: list[Any] = []
        for number in range(4):
            x = torch.arange(6.0).reshape(2, 3) + number
            x = x.requires_grad_() * 1 if grad else x
            torch.manual_seed(number)
            start = len(LOG)
            with everything_counted() if number >= 2 else contextlib.nullcontext():
                value = subject(x)
            found.append((value, LOG[start:]))
        return [(shown(value), log) for value, log in found]

    assert seen(lambda fn: stator.compile(fn, backend=backend)) == seen(lambda fn: fn)


# ---------------------------------------------------------------------- methods of single tensors


def relu_of(x: torch.Tensor) -> Any:
    return x.relu() + 1


def with_method(own: bool, cls: Any = torch.Tensor) -> Any:
    x = cls(torch.arange(3.0) - 1)
    if own:
        x.relu = lambda: x * 9
    return x


@pytest.mark.parametrize("cls", [torch.clone, torch.nn.Parameter], ids=["tensor", "parameter"])
@pytest.mark.parametrize("first", [False, True])
def test_a_tensor_hides_a_method(first: bool, cls: Any) -> None:
    compiled = stator.compile(relu_of, backend="eager")
    for own in (first, not first, first):
        x = with_method(own, cls)
        assert torch.equal(compiled(x), relu_of(x))
