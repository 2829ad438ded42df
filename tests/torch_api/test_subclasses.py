"""Tensor subclasses with `__torch_function__`: their handlers, methods and attributes are interpreted."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.overrides

import stator
from stator import events
from tests.comparison import Report
from tests.torch_api.side_by_side import World, compare

CALLS: list[Any] = []


class Plain(torch.Tensor):
    """Nothing of its own: torch's default handler makes results of this class."""


class Derived(Plain):
    pass


class Scaled(torch.Tensor):
    factor: Any

    @staticmethod
    def __new__(cls, data: Any, factor: float = 2.0) -> Any:
        made = torch.as_tensor(data).as_subclass(cls)
        made.factor = factor
        return made

    def scaled(self) -> Any:
        return self * self.factor

    @property
    def halved(self) -> Any:
        return self / 2

    @halved.setter
    def halved(self, value: Any) -> None:
        self.factor = value


class Slotted(torch.Tensor):
    __slots__ = ("unit",)
    unit: str


class Noting(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CALLS.append((func.__name__, tuple(kind.__name__ for kind in types), kwargs is None))
        return super().__torch_function__(func, types, args, kwargs)


class Product(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.add, torch.Tensor.add, torch.Tensor.__add__):
            func = torch.mul
        return super().__torch_function__(func, types, args, kwargs or {})


class Unwrapping(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Replacing(torch.Tensor):
    def __add__(self, other: Any) -> Any:
        return torch.Tensor.__mul__(self, other)

    def __rsub__(self, other: Any) -> Any:
        return ("from", other)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(0)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(slice(None), value)

    def __len__(self) -> int:
        return 42

    def __contains__(self, item: Any) -> Any:
        return item == 3

    def __iter__(self) -> Any:
        return iter([1, 2, 3])

    def __eq__(self, other: Any) -> Any:
        return "equal"

    def __neg__(self) -> Any:
        return super().__neg__() * 5

    def __getattr__(self, name: str) -> Any:
        if name == "magic":
            return 7
        raise AttributeError(name)

    __hash__ = torch.Tensor.__hash__


class Duck:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls(func(*[arg.tensor if isinstance(arg, cls) else arg for arg in args], **(kwargs or {})))


def of(cls: type[torch.Tensor], wants_grad: bool = False) -> Any:
    made = torch.arange(6.0).reshape(2, 3).as_subclass(cls)
    return made.requires_grad_() if wants_grad else made


def check(function: Callable[..., Any], *makers: Callable[[], Any], backend: Any = "eager",
          whole: bool = True) -> Report:
    """As eager, in two calls, with every operation that a handler was asked about."""
    def make() -> World:
        CALLS.clear()
        return World(function, lambda number: tuple(each() for each in makers), lambda: str(CALLS))
    seen = compare(make, calls=2, backend=backend)
    assert not seen.fallbacks and (not whole or not seen.breaks), seen
    return seen


def values(t: Any) -> Any:
    return (t + 1, 1 - t, t * 2.0, torch.sin(t), t.sum(), t.sum(dim=0), t.T, t[0], -t, t == t, t.relu(),
            torch.cat([t, t]), torch.stack((t, t)), torch.split(t, 1), torch.max(t, 0), t.max(0).values, t @ t.T,
            torch.nn.functional.softmax(t, -1), torch.nn.functional.linear(t, torch.ones(4, 3)), sum([t, t]), abs(t),
            [row for row in t], type(t).__name__, type(t + 1).__name__)


def facts(t: Any) -> Any:
    return (t.shape, t.dtype, t.device, t.size(), t.dim(), t.requires_grad, t.is_leaf, t.grad, len(t), t.shape[0],
            isinstance(t, Plain), isinstance(t, torch.Tensor), issubclass(type(t), Plain), torch.is_tensor(t),
            t.__class__.__name__, torch.overrides.has_torch_function((t,)), torch.overrides.is_tensor_like(t),
            torch.overrides.has_torch_function_unary(t), hasattr(t, "missing"))


def mixed(t: Any, u: Any) -> Any:
    return t + u, u + t, torch.cat([u, t]), u @ t.T, torch.where(u > 2, t, u), u.add(t), torch.add(u, t, alpha=2)


def in_place(t: Any) -> Any:
    t.add_(1)
    t += 2
    t[0] = 3
    return t


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("cls", [Plain, Derived, Noting, Product, Unwrapping])
@pytest.mark.parametrize("function", [values, facts, in_place])
def test_operations_are_those_of_the_class(function: Any, cls: type[torch.Tensor], backend: str) -> None:
    check(function, lambda: of(cls), backend=backend)


@pytest.mark.parametrize("cls", [Plain, Noting, Product])
@pytest.mark.parametrize("other", [torch.Tensor, Plain, Derived, Noting])
def test_two_classes(cls: type[torch.Tensor], other: type[torch.Tensor]) -> None:
    check(mixed, lambda: of(cls), lambda: of(other), whole=False)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_gradients_reach_the_object(backend: str) -> None:
    t, expected = of(Plain, True), of(Plain, True)
    stator.compile(lambda t: (t * t).sum() + t[0].sum(), backend=backend, fullgraph=True)(t).backward()
    ((expected * expected).sum() + expected[0].sum()).backward()
    assert type(t.grad) is type(expected.grad) and torch.equal(t.grad, expected.grad)


def test_special_methods_of_the_class() -> None:
    check(lambda t: (t + 3, 1 - t, t[1], len(t), 3 in t, 4 not in t, [i for i in t], list(t), t == 1, -t, t * 2,
                     t.magic, getattr(t, "nope", 0), t.shape), lambda: of(Replacing))


def test_items_are_set_by_the_class() -> None:
    def use(t: Any) -> Any:
        t[0] = 5.0
        return t * 1
    check(use, lambda: of(Replacing))


def test_an_iterator_that_only_c_code_runs_through_is_a_break() -> None:
    assert "SB017" in check(lambda t: list(zip(t, t, strict=True)), lambda: of(Replacing), whole=False).breaks


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_objects_made_inside(backend: str) -> None:
    def make(u: Any) -> Any:
        y = u + 1
        alias = y.as_subclass(Plain)
        alias.add_(1)
        scaled = Scaled(u, 3.0)
        scaled.halved = 4.0
        slotted = u.as_subclass(Slotted)
        slotted.unit = "m"
        detached = torch.Tensor._make_subclass(Plain, u)
        return (y, alias, alias.as_subclass(torch.Tensor), scaled, scaled.scaled(), scaled.halved, scaled.factor,
                slotted.unit, slotted, detached, Plain(u), Plain([1.0, 2.0]), Plain(2, 3).shape, [alias, alias])

    check(make, lambda: torch.arange(6.0).reshape(2, 3), backend=backend)
    found = stator.compile(make, backend=backend)(torch.ones(2, 3))
    assert found[-1][0] is found[-1][1] is found[1] and vars(found[3]) == {"factor": 4.0} and found[8].unit == "m"


def test_a_class_made_inside() -> None:
    def make(u: Any) -> Any:
        class Local(torch.Tensor):
            def twice(self) -> Any:
                return self * 2
        return u.as_subclass(Local).twice()
    check(make, lambda: torch.ones(2))


def test_no_grad_inside_and_grad_outside() -> None:
    def make(x: Any) -> Any:
        with torch.enable_grad():
            y = (x * 2).as_subclass(Plain)
        with torch.no_grad():
            z = y.as_subclass(Plain)
        return y, z
    def use(x: Any) -> Any:
        with torch.no_grad():
            return [(type(t).__name__, t.requires_grad, t.grad_fn is None) for t in compiled(x)]

    x, compiled = torch.ones(2, requires_grad=True), make
    expected, compiled = use(x), stator.compile(make, backend="eager")
    assert use(x) == use(x) == expected


def test_attributes_are_guarded() -> None:
    calls = 0

    def counting(gm: Any, inputs: Any) -> Any:
        nonlocal calls
        calls += 1
        return gm

    compiled = stator.compile(lambda t: t.scaled() + t.halved, backend=counting, fullgraph=True)
    for factor, captured in ((2.0, 1), (2.0, 1), (5.0, 2)):
        t = Scaled(torch.ones(3), factor)
        assert torch.equal(compiled(t), torch.full((3,), factor + 0.5).as_subclass(Scaled)) and calls == captured
    slotted = torch.ones(2).as_subclass(Slotted)
    read = stator.compile(lambda t: (t * 1, t.unit), backend="eager")
    for unit in ("m", "s"):
        slotted.unit = unit
        assert read(slotted)[1] == unit


def test_the_class_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = stator.compile(lambda t: t + 3, backend="aot_eager")
    ones = torch.ones(2)
    assert torch.equal(compiled(ones.as_subclass(Plain)), torch.full((2,), 4.0).as_subclass(Plain))
    assert type(compiled(ones)) is torch.Tensor
    assert torch.equal(compiled(ones.as_subclass(Product)), torch.full((2,), 3.0).as_subclass(Product))
    monkeypatch.setattr(Plain, "__torch_function__", Unwrapping.__dict__["__torch_function__"], raising=False)
    assert type(compiled(ones.as_subclass(Plain))) is torch.Tensor
    monkeypatch.setattr(Plain, "__add__", lambda self, other: "own", raising=False)
    assert compiled(ones.as_subclass(Plain)) == "own"


def test_a_list_from_outside() -> None:
    check(lambda ts: (torch.cat(ts), torch.stack(tuple(ts)), sum(ts)), lambda: [of(Noting), of(Noting)])


def test_handlers_turned_off() -> None:
    def use(t: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            y, enabled = t + 1, torch._C._is_torch_function_enabled()
        return y, enabled, t * 2, torch._C._is_torch_function_enabled()

    def broken(t: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            y = t + 1
            stator.graph_break()
            z = t + 2
        return y, z, t * 2

    check(use, lambda: of(Noting))
    assert "SB009" in check(broken, lambda: of(Noting), whole=False).breaks
    compiled = stator.compile(lambda t: t + 1, backend="eager")
    assert type(compiled(of(Plain))) is Plain
    with torch._C.DisableTorchFunctionSubclass():
        assert type(compiled(of(Plain))) is torch.Tensor
    assert type(compiled(of(Plain))) is Plain


def test_a_break_keeps_the_class_and_the_attributes() -> None:
    def use(t: Any) -> Any:
        y = Scaled(t + 1, 3.0)
        stator.graph_break()
        return y.scaled(), type(y).__name__, y.factor
    assert check(use, lambda: torch.ones(2), whole=False).breaks == ["SB009"]


def test_what_needs_values_breaks() -> None:
    assert check(lambda t: 1 if t.sum() > 0 else 2, lambda: of(Plain), whole=False).breaks == ["SB002"]
    assert set(check(lambda t: str(t), lambda: of(Plain), whole=False).breaks) == {"SB003"}


def test_ducks_are_asked_about_functions_and_operators() -> None:
    def use(duck: Any, u: Any) -> Any:
        made = (torch.add(duck, 1), torch.sin(duck), torch.add(u, duck), u + duck, u * duck, torch.cat([u, u]))
        return [type(each).__name__ for each in made], [each.tensor for each in made[:-1]]
    check(use, lambda: Duck(torch.ones(3)), lambda: torch.ones(3))


class Counting(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CALLS.append(("mode", func.__name__, tuple(kind.__name__ for kind in types)))
        return func(*args, **(kwargs or {}))


def test_a_mode_is_asked_before_the_class() -> None:
    def use(t: Any) -> Any:
        with Counting():
            y = t + 1
        return y, t * 2
    check(use, lambda: of(Noting))


@pytest.mark.parametrize("change", [lambda x: x.unsqueeze_(0), lambda x: x.t_(), lambda x: x.squeeze_()])
def test_an_input_whose_layout_the_program_changes(change: Any) -> None:
    def program(x: Any) -> Any:
        change(x)
        return x * 2

    seen = []
    for subject in (program, stator.compile(program, backend="eager")):
        x = torch.arange(3.0).reshape(1, 3).as_subclass(Plain)
        result = subject(x)
        seen.append((type(result), result.shape, result.stride(), x.shape, x.stride()))
    assert seen[0] == seen[1]


def test_objects_of_a_class_made_inside_come_and_go() -> None:
    def make(u: Any) -> Any:
        class Local(torch.Tensor):
            pass
        return u.as_subclass(Local), Local

    for run in (make, stator.compile(make, backend="eager")):
        for _ in range(3):
            made, cls = run(torch.ones(2))
            more = [torch.full((2,), float(n)).as_subclass(cls) for n in range(50)]
            for each in more:
                each.note = [each]  # a cycle, which the collector has to take apart
            assert type(made + 1) is cls and float(sum(more).sum()) == 2450.0
            del more, each, made
            gc.collect()


class Dispatching(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C._DisableTorchDispatch():
            return func(*args, **(kwargs or {}))


def made_as(x: Any, cls: Any) -> Any:
    told = []
    for make in (x.as_subclass, lambda kind: torch.Tensor._make_subclass(kind, x), lambda kind: kind(x)):
        try:
            made = make(cls)
            told.append((type(made).__name__, isinstance(made, torch.nn.Parameter), made.requires_grad, (made + 1).tolist()))
        except Exception as error:
            told.append((type(error).__name__, str(error)))
    return x + 1, told


@pytest.mark.parametrize("cls", [int, 3, torch.nn.Parameter, torch.nn.Buffer, Dispatching, Plain, torch.Tensor], ids=str)
def test_classes_that_tensors_may_not_have(cls: Any) -> None:
    compiled = stator.compile(made_as, backend="eager")
    for step in range(2):
        x = torch.ones(2) * step
        (found, told), (expected, other) = compiled(x, cls), made_as(x, cls)
        assert torch.equal(found, expected) and told == other


def constructed(x: Any, data: Any) -> Any:
    told = []
    for kind in (torch.Tensor, torch.LongTensor, torch.BoolTensor, torch.DoubleTensor):
        try:
            told.append(kind(data).tolist())
        except Exception as error:
            told.append((type(error).__name__, str(error)))
    return x + 1, told


@pytest.mark.parametrize("data", [[1, 2.5], ["a"], [numpy.float32(1.5)], [numpy.float64(1.5)], [None], [[1, 2], [3, "b"]],
                                  [torch.tensor(1), torch.tensor(2)], [1, 1j], (1, (2,)), [[1], [2, 3]]], ids=str)
def test_tensors_made_of_lists(data: Any) -> None:
    compiled = stator.compile(constructed, backend="eager")
    for step in range(2):
        x = torch.ones(2) * step
        (found, told), (expected, other) = compiled(x, data), constructed(x, data)
        assert torch.equal(found, expected) and told == other


class Asked(torch.Tensor):
    """Tells what it is asked, and has its own answer to some of it."""

    log: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.log.append(func.__name__)
        if func is torch.Tensor.__bool__:
            return False
        return super().__torch_function__(func, types, args, kwargs or {})


ASKED: dict[str, Callable[[Any], Any]] = {
    "truth": lambda x: (bool(x), 1 if x else 2, not x),
    "items": lambda x: [part.as_subclass(torch.Tensor).tolist() for part in x],
    "first": lambda x: next(iter(x)).as_subclass(torch.Tensor),
    "floats": lambda x: [float(part) for part in x],
    "part": lambda x: (x[0] + 1).as_subclass(torch.Tensor),
    "written": lambda x: x.__setitem__(0, 3.0),
    "negated": lambda x: (-x).as_subclass(torch.Tensor),
    "compared": lambda x: (x == 1).as_subclass(torch.Tensor),
    "added": lambda x: (1 + x).as_subclass(torch.Tensor),
    "shape": lambda x: type(torch._shape_as_tensor(x)).__name__,
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("cls", [Asked, Plain])
def test_what_a_class_is_asked(name: str, cls: Any) -> None:
    def program(x: Any) -> Any:
        return ASKED[name](x)

    told = []
    for run in (program, stator.compile(program, backend="eager", options={"strict": True})):
        for value in (1.0, 0.0, 1.0):
            Asked.log.clear()
            found = run(torch.full((1,), value).as_subclass(cls))
            told.append((str(found), list(Asked.log)))
    assert told[:3] == told[3:]


def test_a_class_with_an_answer_is_captured_whole() -> None:
    seen = compare(lambda: World(lambda x: (2 if x.as_subclass(Asked) else 3, x + 1), lambda step: (torch.ones(1),)), calls=2)
    assert not seen.breaks


@pytest.mark.parametrize("program", [lambda x: x + 2 if x else x + 3, lambda x: x + (not x), lambda x: x + bool(x)])
def test_branches_ask_the_class_of_a_tensor(program: Any) -> None:
    """Also where both ways of a branch on a tensor would be captured."""
    compiled = stator.compile(program, backend="eager", options={"capture_control_flow": True, "strict": True})
    for value in (1.0, 0.0, 1.0):
        for cls in (Asked, Plain, torch.Tensor):
            x = torch.full((1,), value).as_subclass(cls)
            assert compiled(x).as_subclass(torch.Tensor).tolist() == program(x).as_subclass(torch.Tensor).tolist()


def test_assertions_ask_the_class_of_a_tensor() -> None:
    def program(x: Any) -> Any:
        if x:
            raise ValueError("true")
        return x + 1

    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    with events.record() as log:
        assert float(compiled(torch.ones(1).as_subclass(Asked))) == 2.0
    assert not [event for event in log if isinstance(event, events.EagerFallback)]
