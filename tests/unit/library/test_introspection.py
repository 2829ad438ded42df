"""Signatures, class dicts, scripted functions and questions about packages, each guarded as far as it was read."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import sys
from typing import Any

import pytest
import torch

import stator


def compiled(fn: Any) -> Any:
    return stator.compile(fn, backend="eager", fullgraph=True)


def test_signature() -> None:
    def asked(a: int, /, b: Any = (1,), *c: Any, d: int = 3, **e: Any) -> None:
        pass

    def fn(x: torch.Tensor) -> Any:
        found = inspect.signature(asked)
        kinds = [str(p.kind) for p in found.parameters.values()]
        return x + found.parameters["d"].default, list(found.parameters), kinds, found.parameters["b"].default

    run, x = compiled(fn), torch.ones(1)
    assert run(x) == fn(x)
    asked.__kwdefaults__["d"] = 5
    assert run(x) == fn(x)


def test_signature_of_a_bound_and_wrapped_method() -> None:
    class Layer:
        def forward(self, x: Any, scale: int = 2) -> Any:
            return x

    def fn(x: torch.Tensor, layer: Layer) -> Any:
        return x * len(inspect.signature(layer.forward).parameters)

    run, x = compiled(fn), torch.ones(1)
    assert run(x, Layer()).item() == fn(x, Layer()).item() == 2


def test_class_dict_is_guarded_name_by_name() -> None:
    class Holder:
        there = 1

    def fn(x: torch.Tensor) -> Any:
        own = Holder.__dict__
        return x + ("there" in own) + 2 * ("later" in own) + own.get("later", 5) + own["there"] + ("real" in int.__dict__)

    run, x = compiled(fn), torch.ones(1)
    assert run(x) == fn(x)
    Holder.unread = 0
    assert run(x) == fn(x)
    Holder.later = 8
    assert run(x) == fn(x)
    Holder.there = 3
    assert run(x) == fn(x)


def test_class_dict_as_a_whole() -> None:
    class Holder:
        there = 1

    def fn(x: torch.Tensor) -> Any:
        return x + len(Holder.__dict__), sorted(vars(Holder))

    run, x = compiled(fn), torch.ones(1)
    assert run(x) == fn(x)
    Holder.later = 8
    assert run(x) == fn(x)


def test_recursion_limit_is_the_users() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x + sys.getrecursionlimit()

    run, x, limit = compiled(fn), torch.ones(1), sys.getrecursionlimit()
    assert run(x) == fn(x)
    sys.setrecursionlimit(limit + 50)
    try:
        assert run(x) == fn(x)
    finally:
        sys.setrecursionlimit(limit)


@torch.jit.script
def scripted(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n + 1


def test_scripted_functions_are_captured_and_traced_ones_are_not() -> None:
    x = torch.ones(2)
    run = compiled(lambda x: scripted(x, 3).sin())
    assert torch.equal(run(x), scripted(x, 3).sin())
    frozen = torch.jit.trace(lambda x: x * x.shape[0], x, check_trace=False)
    with pytest.raises(stator.Unsupported):
        compiled(lambda x: frozen(x))(torch.ones(3))


def test_installed_packages() -> None:
    def fn(x: torch.Tensor) -> Any:
        if importlib.util.find_spec("no_such_package_at_all") is not None:
            return x
        try:
            importlib.metadata.version("no-such-package-at-all")
        except importlib.metadata.PackageNotFoundError:
            x = x + 1
        return x + len(importlib.metadata.version("numpy"))

    assert compiled(fn)(torch.ones(1)) == fn(torch.ones(1))


def test_augmented_assignment_to_a_number() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        total = 0
        total += x
        kept = y
        y @= x
        return total, kept, y

    x, y = torch.randn(2, 2), torch.randn(2, 2)
    for one, other in zip(compiled(fn)(x, y), fn(x, y), strict=True):
        assert torch.equal(one, other)


def test_membership_in_an_outside_set_does_not_ask_for_its_order() -> None:
    names = {f"argument_{i}" for i in range(40)}
    for i in range(0, 40, 3):
        names.discard(f"argument_{i}")
    names.add("query")

    def fn(x: torch.Tensor) -> Any:
        return x + len([name for name in ("query", "key", "argument_4") if name in names])

    run, x = compiled(fn), torch.ones(1)
    assert run(x) == fn(x) == 3
    names.add("key")
    assert run(x) == fn(x) == 4
