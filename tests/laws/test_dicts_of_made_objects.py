"""`__dict__` of what a call makes, held over a break: one dict with two owners, as in eager."""

from __future__ import annotations

import functools
import types
from typing import Any

import pytest
import torch

import stator
from stator.heap.heap import Heap


class Plain:
    pass


def plain_function() -> Any:
    def made() -> None:
        pass
    return made


MAKERS: dict[str, Any] = {
    "function": plain_function, "lambda": lambda: lambda: 1, "object": Plain, "namespace": types.SimpleNamespace,
    "partial": lambda: functools.partial(int), "exception": lambda: type("Made", (Exception,), {})(),
    "module": lambda: types.ModuleType("made"), "layer": torch.nn.ReLU, "list": lambda: type("Made", (list,), {})(),
}


def program(make: Any, written: str, cut: bool) -> Any:
    def changed(x: torch.Tensor) -> Any:
        made = make()
        names = made.__dict__
        names["first"] = 1
        if cut:
            stator.graph_break()
        if written == "dict":
            names["second"] = x + 1
        else:
            made.second = x + 1
        return made, names
    return changed


def outcome(function: Any) -> Any:
    made, names = function(torch.ones(2))
    return made.__dict__ is names, sorted(names), made.first, made.second.tolist()


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("written", ["dict", "object"])
@pytest.mark.parametrize("maker", MAKERS)
def test_is_eager(maker: str, written: str, cut: bool) -> None:
    function = program(MAKERS[maker], written, cut)
    assert outcome(stator.compile(function, backend="eager")) == outcome(function)


def wrapped_cache(x: torch.Tensor) -> Any:
    @functools.lru_cache
    def cached(q: Any) -> Any:
        return q

    @functools.wraps(cached)
    def wrapper() -> None:
        pass
    return wrapper


def test_wrapper_has_what_it_wraps() -> None:
    eager, compiled = wrapped_cache(torch.ones(1)), stator.compile(wrapped_cache, backend="eager")(torch.ones(1))
    assert list(vars(compiled)) == list(vars(eager))


def test_is_noticed(monkeypatch: Any) -> None:
    monkeypatch.setattr(Heap, "note_namespace", lambda self, own, obj, tracker: None)
    function = program(plain_function, "dict", True)
    with pytest.raises((AssertionError, AttributeError)):
        assert outcome(stator.compile(function, backend="eager")) == outcome(function)
