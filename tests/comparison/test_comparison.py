"""Each comparison of an outcome can fail: a fault of its kind is injected, and found in its own part."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import stator
from curriculum import ramp
from tests.comparison import (
    Checks,
    Report,
    Snapshotter,
    Surroundings,
    World,
    call,
    compare_worlds,
    differences,
    require_same,
    same_as_eager,
)
from tests.comparison.injected_faults import FAULTS

COUNTS: list[int] = []


def returns_alias(x: torch.Tensor, items: list) -> list:
    print("sum of", len(items))
    return [x, items, items]


def returns_view(x: torch.Tensor) -> tuple:
    return x.view(2), x + 1


def mutates(x: torch.Tensor) -> torch.Tensor:
    COUNTS.append(x.dim())
    return x.add_(1)


def raises(x: torch.Tensor) -> None:
    y = x + 1
    raise ValueError(f"bad shape {tuple(y.shape)}")


def differentiable(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def zero(x: torch.Tensor) -> torch.Tensor:
    return x * 0


def reads_iterator(items: Any, x: torch.Tensor) -> torch.Tensor:
    return x + next(items)


def make_closure() -> Callable[..., Any]:
    kept = 1

    def closure(x: torch.Tensor) -> Any:
        return x + kept
    return closure


ALIAS, RAMP = call(ramp(2), [1]), call(ramp(2))


def with_grad() -> Any:
    return (ramp(2).requires_grad_(),), {}


FOUND_BY: list[tuple[str, Any, Any]] = [
    ("value", returns_alias, ALIAS), ("value", raises, RAMP), ("type", returns_alias, ALIAS),
    ("dtype", zero, RAMP), ("strides", zero, RAMP), ("sign of a zero", zero, call(torch.ones(2))), ("requires_grad", zero, RAMP),
    ("alias", returns_alias, ALIAS), ("shared storage", returns_view, RAMP),
    ("mutation", returns_alias, ALIAS), ("mutation", raises, RAMP), ("global", mutates, RAMP), ("cell", make_closure(), RAMP),
    ("iterator", reads_iterator, lambda: ((iter([1, 2, 3]), ramp(2)), {})), ("accumulated gradient", differentiable, with_grad),
    ("gradient", differentiable, with_grad),
    ("exception", returns_alias, ALIAS), ("exception", raises, RAMP), ("text", raises, RAMP), ("context", raises, RAMP),
    ("cause", raises, RAMP), ("note", raises, RAMP), ("attribute", raises, RAMP), ("line", raises, RAMP),
    ("print", returns_alias, ALIAS), ("stderr", returns_alias, ALIAS), ("own warning", zero, RAMP), ("warning", zero, RAMP),
    *((name, mutates, RAMP) for name in ("rng", "random", "numpy", "grad_mode", "default dtype", "autocast", "autocast dtype",
                                         "deterministic")),
]  # fmt: skip


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("STATOR_TEST_IDENTITY", "1")
    monkeypatch.delenv("STATOR_TEST_FAULT", raising=False)
    return monkeypatch


@pytest.fixture
def autocast_dtype_kept() -> Any:
    before = torch.get_autocast_dtype("cpu")
    yield
    torch.set_autocast_dtype("cpu", before)


def compared(fn: Any, inputs: Any, fault: str) -> Report:
    if fault == "warning":
        checks = Checks(warnings="interleaved")
        return require_same(compare_worlds(lambda: World(fn, [inputs], Surroundings(__name__)), checks=checks))
    return same_as_eager(fn, inputs, setup=lambda: {"COUNTS": []})


@pytest.mark.parametrize(("fault", "fn", "inputs"), FOUND_BY)
def test_each_fault_is_found(identity: pytest.MonkeyPatch, autocast_dtype_kept: None, fault: str, fn: Any, inputs: Any) -> None:
    compared(fn, inputs, fault)
    identity.setenv("STATOR_TEST_FAULT", fault)
    with pytest.raises(AssertionError, match="differs from eager") as found:
        compared(fn, inputs, fault)
    part = FAULTS[fault].part
    if fault not in ("value", "mutation") or fn is not raises:  # there, the exception is another
        # An unexpected exception is a part that eager does not have.
        assert f"first call.{part}" in str(found.value) or f"'{part}'" in str(found.value)


def test_every_fault_is_tried() -> None:
    assert {fault for fault, _, _ in FOUND_BY} == set(FAULTS)


def unlike_on_second_run(x: torch.Tensor) -> torch.Tensor:
    COUNTS.append(1)
    return x + len(COUNTS)


def test_state_that_leaks_between_sides_is_found(identity: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="differs from eager"):
        same_as_eager(unlike_on_second_run, call(ramp(2)))
    same_as_eager(unlike_on_second_run, call(ramp(2)), setup=lambda: {"COUNTS": []})


def test_a_later_call_is_named(identity: pytest.MonkeyPatch) -> None:
    def world() -> World:
        return World(lambda x: x.sum(), [call(ramp(2)), call(ramp(2)), call(ramp(count))], Surroundings(__name__))

    sizes = iter([3, 4])
    count = 0

    def make() -> World:
        nonlocal count
        count = next(sizes)
        return world()

    [text] = compare_worlds(make).differences[:1]
    assert text.startswith("call 2.args[0]: eager '")


# ---------------------------------------------------------------------- compiled


def breaking(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    stator.graph_break()
    return y * 2


def test_a_break_is_not_captured_whole() -> None:
    with pytest.raises(AssertionError, match="not captured whole: .*SB"):
        same_as_eager(breaking, RAMP)
    assert same_as_eager(breaking, RAMP, fullgraph=False, graphs=2).breaks


def test_the_number_of_graphs_is_compared() -> None:
    assert same_as_eager(zero, RAMP, graphs=1).captures == [1, 0]
    with pytest.raises(AssertionError, match="expected 2"):
        same_as_eager(zero, RAMP, graphs=2)


def test_changes_between_calls_reach_both_sides() -> None:
    def make() -> World:
        box = {"n": 1}
        changes = [lambda: None, lambda: box.update(n=5)]
        return World(lambda x: x + box["n"], [RAMP, RAMP], Surroundings(__name__, state=lambda: box), lambda i: changes[i]())

    report = require_same(compare_worlds(make))
    assert report.captures == [1, 1]


# ---------------------------------------------------------------------- snapshots


def text_of(one: Any, other: Any, tolerance: float | None = 0.0) -> str:
    left, right = (Snapshotter(__name__).take(value, "v") for value in (one, other))
    return "\n".join(differences(left, right, "v", tolerance))


class Attributes:
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


class Slots:
    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n


def nested(size: int) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(size, 3)], layout=torch.jagged)


def coalesced(is_coalesced: bool) -> torch.Tensor:
    made = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.tensor([1.0, 2.0]), (2,))
    return made.coalesce() if is_coalesced else made


UNLIKE: dict[str, tuple[Any, Any]] = {
    "a number and its type": (1, 1.0), "a bool and an int": (True, 1), "a nested item": ([{"a": (1, 2)}], [{"a": (1, 3)}]),
    "order of keys": ({"a": 1, "b": 2}, {"b": 2, "a": 1}), "an attribute": (Attributes(n=1), Attributes(n=2)),
    "a slot": (Slots(1), Slots(2)), "a set": ({1, 2}, {1, 3}), "a generator's function": ((i for i in ()), iter(())),
    "items of a wrapper subclass": (TwoTensor(torch.ones(2), torch.ones(2)), TwoTensor(torch.ones(2), torch.zeros(2))),
    "rows of a nested tensor": (nested(3), nested(4)), "coalesced": (coalesced(True), coalesced(False)),
    "an array": (numpy.arange(3.0), numpy.arange(3.0) + 1), "an array's type": (numpy.arange(3), numpy.arange(3.0)),
    "an array's layout": (numpy.ones((2, 2)), numpy.ones((2, 2)).T.copy(order="F")),
    "a quantised tensor": tuple(torch.quantize_per_tensor(torch.ones(2) * n, 0.1, 0, torch.qint8) for n in (1, 2)),
    "a lazy conjugate": (torch.ones(2) + 1j, (torch.ones(2) - 1j).conj()),
}  # fmt: skip


@pytest.mark.parametrize("name", UNLIKE)
def test_unlike_values_differ(name: str) -> None:
    one, other = UNLIKE[name]
    assert text_of(one, other)
    assert not text_of(other, other)


def test_tolerance() -> None:
    x = torch.ones(2)
    assert text_of(x, x + 1e-6)
    assert not text_of(x, x + 1e-6, tolerance=1e-4)
    assert not text_of(x, x + 1e-6, tolerance=None)
    assert text_of(x, x + 1e-2, tolerance=1e-4)
    assert text_of(x + 0j, x + 1e-2j, tolerance=1e-4)
    assert not text_of(torch.empty(3), torch.ones(3), tolerance=float("inf"))
    assert text_of(0.1, 0.100001) and not text_of(0.1, 0.100001, tolerance=1e-4) and text_of(0.1, 0.2, tolerance=1e-4)
    assert text_of(torch.empty(3), torch.ones(4), tolerance=float("inf"))


def test_a_snapshot_runs_no_code_of_the_program() -> None:
    class Watching(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("called")

    class Loud:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("called")

        def __getattribute__(self, name: str) -> Any:
            raise AssertionError("called")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not text_of([Loud()], [Loud()])
        x = torch.ones(2).as_subclass(Watching)
        assert not text_of(x, x)
