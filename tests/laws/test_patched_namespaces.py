"""The dicts of patched classes and modules, as a program holds them; replaced operators; patches beside threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.heap import heap

TENSOR, MODULE = vars(torch.Tensor), vars(torch)
ITEMS, KEYS = TENSOR.items(), MODULE.keys()
BASE = torch._C.TensorBase
ATEN = torch.ops.aten
X = torch.arange(4.0) - 1


def ten_times(self):
    return BASE.relu(self) * 10


def other(self):
    return BASE.relu(self) * 7


@pytest.fixture
def patched(monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.Tensor, "relu", ten_times)
    monkeypatch.setattr(torch.Tensor, "of_this_test", 1, raising=False)
    monkeypatch.setattr(torch, "relu", ten_times)


def replace_while_held(x):
    held = TENSOR
    if "relu" in held:
        torch.Tensor.relu = other
    found = x.relu(), held.get("relu")
    if "relu" in held:
        torch.Tensor.relu = ten_times
    return found


def loop_with_breaks(x):
    found = []
    for place, name in enumerate(vars(torch.Tensor)):
        if name in ("relu", "of_this_test"):
            print(name)
            torch.random.seed()  # a break
            found.append((name, x + place))
    return found


def held_over_a_break(x):
    held = vars(torch.Tensor)
    torch.random.seed()
    return "relu" in held, x + 1


PROGRAMS: dict[str, Any] = {
    "entry of a class": lambda x: ("relu" in TENSOR, TENSOR["relu"](x)),
    "entry of a module": lambda x: (MODULE["relu"](x), "relu" in KEYS, MODULE.get("relu") is torch.relu),
    "vars of a module": lambda x: vars(torch)["relu"](x),
    "items": lambda x: ([name for name, value in ITEMS if value is ten_times], x + 1),
    "order": lambda x: (list(TENSOR)[-2:], list(vars(torch.Tensor))[-2:], x + 1),
    "size": lambda x: (len(TENSOR), len(KEYS), x + 1),
    "equality": lambda x: (vars(torch.Tensor) == TENSOR, TENSOR.copy()["relu"] is ten_times, x + 1),
    "replaced while held": replace_while_held,
    "loop with breaks": loop_with_breaks,
    "held over a break": held_over_a_break,
}


def outcome(function: Any) -> Any:
    try:
        return str(function(X))
    except Exception as error:
        return repr(error)


@pytest.mark.usefixtures("patched")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_dicts_show_patches(program: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    order = list(TENSOR)
    compiled = stator.compile(program, backend="eager")
    assert [outcome(compiled), outcome(compiled)] == [outcome(program)] * 2
    assert list(TENSOR) == order
    del torch.Tensor.relu
    assert outcome(compiled) == outcome(program)
    torch.Tensor.relu = ten_times


def replaced(old: Any) -> Any:
    return lambda *args: old(*args) * 10


OPERATORS: dict[str, Any] = {
    "overload": (ATEN.relu, "default", lambda x: ATEN.relu.default(x)),
    "packet": (ATEN, "relu", lambda x: ATEN.relu(x)),
    "overload behind a function": (ATEN.relu, "default", lambda x: torch.relu(x) + 1),
    "packet behind a method": (ATEN, "neg", lambda x: x.neg() + 1),
    "overload behind an operator": (ATEN.add, "Tensor", lambda x: x + x),
}


def test_without_the_view_the_guards_reject_the_call(patched: None, monkeypatch: Any) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    monkeypatch.setattr(heap, "names_of_module", lambda namespace: namespace)
    with pytest.raises(stator.InternalError, match="the guards reject the call"):
        stator.compile(PROGRAMS["entry of a module"], backend="eager")(X)


@pytest.mark.parametrize("first", ["patched", "unpatched"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("owner", "name", "program"), OPERATORS.values(), ids=OPERATORS)
def test_replaced_operators(owner: Any, name: str, program: Any, grad: bool, first: str, monkeypatch: Any) -> None:
    """The replacement runs where the program calls it, and nowhere in graphs of AOTAutograd."""
    x = X.clone().requires_grad_(grad)
    new, compiled = replaced(getattr(owner, name)), stator.compile(program, backend="aot_eager")
    if first == "unpatched":
        assert compiled(x).equal(program(x))
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, new)
        for _ in range(2):
            assert compiled(x).equal(program(x))
    assert compiled(x).equal(program(x))


def test_replaced_operators_under_fullgraph(monkeypatch: Any) -> None:
    monkeypatch.setattr(ATEN, "relu", replaced(ATEN.relu))
    with pytest.raises(stator.Unsupported, match="torch.ops.aten.relu was replaced") as caught:
        stator.compile(lambda x: x + 1, backend="aot_eager", fullgraph=True)(X)
    assert caught.value.code == "SB025"


@pytest.mark.parametrize(("name", "new", "program"), [
    ("__add__", lambda self, value: BASE.__mul__(self, 5), lambda x: x + 1),
    ("__float__", lambda self: BASE.__float__(self) + 0.5, lambda x: float(x[1])),
])
def test_replaced_special_methods_beside_threads(name: str, new: Any, program: Any, monkeypatch: Any) -> None:
    """Eager with an event; an error under fullgraph."""
    monkeypatch.setattr(torch.Tensor, name, new)
    expected, stop = program(X), threading.Event()
    thread = threading.Thread(target=lambda: [torch.ones(2) for _ in iter(stop.is_set, True)])
    thread.start()
    try:
        with events.record() as log:
            assert str(stator.compile(program, backend="eager")(X)) == str(expected)
        with pytest.raises(stator.Unsupported, match="other threads are running") as caught:
            stator.compile(program, backend="eager", fullgraph=True)(X)
    finally:
        stop.set()
        thread.join()
    assert caught.value.code == "SB025"
    assert any(isinstance(event, events.EagerFallback) for event in log)
