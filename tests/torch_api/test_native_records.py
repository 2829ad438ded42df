"""Records of C++ that never change: their fields are constants under guards. Wrapped bodies, and settings left behind."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._higher_order_ops.wrap import dynamo_bypassing_wrapper, wrap

import stator
from tests.torch_api.side_by_side import World, compare

T = torch.Tensor
Record: Any = torch._C._dynamo.guards.GuardDebugInfo  # type: ignore[attr-defined]
RECORDS = [Record(True, ["a"], 0), Record(False, ["a"], 1), Record(True, ["b"], 0)]


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STATOR_STRICT", "1")
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def of_a_record(x: T, record: Any) -> Any:
    return x.cos() if record.result else x.sin(), record.verbose_code_parts, record.num_guards_executed


def of_an_operator(x: T, operator: Any) -> Any:
    schema = operator._schema
    names = [each.name for each in schema.arguments]
    return x + len(names), names, schema.name, schema.is_mutable, len(schema.returns)


def test_fields_are_guarded() -> None:
    compiled = stator.compile(of_a_record, backend="eager", fullgraph=True)
    for record in (*RECORDS, *RECORDS):
        x = torch.randn(3)
        assert str(compiled(x, record)) == str(of_a_record(x, record))


def test_schemas_of_operators() -> None:
    compiled = stator.compile(of_an_operator, backend="eager", fullgraph=True)
    for operator in (torch.ops.aten.add.Tensor, torch.ops.aten.relu_.default, torch.ops.aten.add.Tensor):
        x = torch.ones(2)
        assert str(compiled(x, operator)) == str(of_an_operator(x, operator))


def determinism() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def left_off(x: T) -> Any:
    before = determinism()
    torch.use_deterministic_algorithms(False)
    y = torch.relu_(x + 1) * 2
    return y, before, determinism()


def scattered(x: T) -> Any:
    y = x.sin()
    torch.use_deterministic_algorithms(False)
    return torch.zeros(3).index_add_(0, torch.tensor([0, 1, 1]), y)


def differentiated(x: T) -> Any:
    leaf = x.detach().requires_grad_()
    torch.use_deterministic_algorithms(False)
    return (leaf * 2).sum().detach()


def under_another_choice(function: Callable[..., Any], compiled: Callable[..., Any], x: T) -> None:
    found = []
    for call in (function, compiled):
        torch.use_deterministic_algorithms(True, warn_only=True)
        found.append((call(x.clone()), determinism()))
    assert str(found[0]) == str(found[1])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_operators_that_never_look_at_determinism(backend: str) -> None:
    compiled = stator.compile(left_off, backend=backend, fullgraph=True)
    for _ in range(2):
        under_another_choice(left_off, compiled, torch.randn(3))


@pytest.mark.parametrize("function", [scattered, differentiated])
def test_operators_that_may_look_at_it_break(function: Callable[..., Any]) -> None:
    compiled = stator.compile(function, backend="aot_eager")
    for _ in range(2):
        under_another_choice(function, compiled, torch.randn(3))
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.raises(stator.Unsupported, match="SB006.*deterministic algorithms"):
        stator.compile(function, backend="aot_eager", fullgraph=True)(torch.randn(3))


COUNTED: list[int] = []


def writing(x: T) -> Any:
    return wrap(lambda y: y.add_(1.0), x) * 2, x


def counting(x: T) -> Any:
    return wrap(lambda y: (COUNTED.append(len(COUNTED)), y + len(COUNTED))[1], x)


def of_a_number(x: T) -> Any:
    number = x.sum().item()
    return wrap(lambda y: wrap(lambda z: z + number, y), x)


def through_a_wrapper(x: T) -> Any:
    def doubled(function: Any, times: int) -> Any:
        return lambda *args, **kwargs: function(*args, **kwargs) * times

    return dynamo_bypassing_wrapper(lambda function: doubled(function, 3), lambda y, by=1: y + by, x, by=2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [writing, counting, of_a_number, through_a_wrapper],
                         ids=lambda function: function.__name__)
def test_bodies_with_effects(function: Callable[..., Any], backend: str) -> None:
    def world() -> World:
        COUNTED.clear()
        return World(function, lambda step: (torch.arange(3.0) + step,), lambda: list(COUNTED))

    seen = compare(world, calls=2, backend=backend, tolerance=1e-6)
    assert not seen.breaks, seen.causes


@dataclasses.dataclass(frozen=True)
class Shape:
    sizes: tuple[int, ...]
    inner: Any


class Described(torch.Tensor):
    """A wrapper whose context is a record."""

    _data: T
    _shape: Shape

    @staticmethod
    def __new__(cls, data: T, shape: Shape) -> Any:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, data.size(), strides=data.stride(), dtype=data.dtype, device=data.device)

    def __init__(self, data: T, shape: Shape) -> None:
        self._data, self._shape = data, shape

    def __tensor_flatten__(self) -> Any:
        return ["_data"], self._shape

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Described(inner["_data"], context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shapes = [each._shape for each in args if isinstance(each, cls)]
        result = func(*[each._data if isinstance(each, cls) else each for each in args], **(kwargs or {}))
        return cls(result, shapes[0])


Pair = collections.namedtuple("Pair", "near far")


class Slotted(Described):
    """Its attributes lie in slots."""

    __slots__ = ("_data", "_shape", "_other")
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


def described(x: T) -> Any:
    made = Described(x, Shape(tuple(x.shape), Shape((1,), None)))
    return made * made, made._shape, made


def in_slots(x: T) -> Any:
    made = Slotted(x, Pair(torch.float32, Pair(1, "far")))  # type: ignore[arg-type]
    return made, made._shape, hasattr(made, "_other"), made._data


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_wrappers_made_of_records(backend: str) -> None:
    compiled = stator.compile(described, backend=backend, fullgraph=True, dynamic=False)
    for size in (2, 3):
        x = torch.arange(float(size))
        found, expected = compiled(x), described(x)
        assert type(found[0]) is Described and torch.equal(found[0]._data, expected[0]._data)
        assert found[0]._shape == found[1] == expected[1] == found[2]._shape


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_slots_of_wrappers_made_inside(backend: str) -> None:
    compiled = stator.compile(in_slots, backend=backend, fullgraph=True, dynamic=False)
    for size in (2, 3):
        found, expected = compiled(torch.ones(size)), in_slots(torch.ones(size))
        assert type(found[0]) is Slotted and found[1:3] == expected[1:3]
        assert torch.equal(found[3], expected[3]) and torch.equal(found[0]._data, expected[0]._data)
        assert found[0]._shape == expected[0]._shape and type(found[1]) is Pair
