"""Wrapper subclasses (`__torch_dispatch__`): inputs, results and parameters of captured code, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch.testing._internal.two_tensor import TwoTensor

import stator
from stator import events


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of the tracer is raised: eager's result would be right."""
    monkeypatch.setenv("STATOR_STRICT", "1")


class Offset(torch.Tensor):
    """Adds a number of its own to every product; the number is part of its context."""

    _data: torch.Tensor
    _number: int

    @staticmethod
    def __new__(cls, data: torch.Tensor, number: int = 0) -> Any:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, data.size(), strides=data.stride(), dtype=data.dtype, device=data.device,
            requires_grad=data.requires_grad)

    def __init__(self, data: torch.Tensor, number: int = 0) -> None:
        self._data, self._number = data, number

    def __tensor_flatten__(self) -> Any:
        return ["_data"], {"number": self._number}

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Offset(inner["_data"], context["number"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        number = next(leaf._number for leaf in pytree.tree_leaves(args) if isinstance(leaf, cls))
        result = func(*pytree.tree_map_only(cls, lambda t: t._data, args), **(kwargs or {}))
        if func is torch.ops.aten.mul.Tensor:
            result = result + number
        return pytree.tree_map_only(torch.Tensor, lambda t: cls(t, number), result)

    def __repr__(self) -> str:  # torch's logs show the fakes of a graph
        return f"Offset({self._data!r}, {self._number})"

    def data_and_number(self) -> Any:
        return self._data * 1, self._number


class Hidden(torch.Tensor):
    """A wrapper that nobody can take apart."""

    @staticmethod
    def __new__(cls, data: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, data.size(), dtype=data.dtype)  # type: ignore[attr-defined]

    def __init__(self, data: torch.Tensor) -> None:
        self._inside = data

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*pytree.tree_map_only(cls, lambda t: t._inside, args), **(kwargs or {}))


def two(wants_grad: bool = False) -> Any:
    made = TwoTensor(torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3) / 2)
    return made.requires_grad_() if wants_grad else made


def portrait(value: Any) -> Any:
    if isinstance(value, TwoTensor):
        return type(value).__name__, portrait(value.a), portrait(value.b), value.requires_grad, value.is_leaf
    if isinstance(value, Offset):
        return type(value).__name__, portrait(value._data), value._number, value.requires_grad
    if isinstance(value, Hidden):
        return type(value).__name__, portrait(value._inside)
    if isinstance(value, torch.Tensor):
        return type(value).__name__, value.tolist(), value.requires_grad, value.is_leaf
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [portrait(item) for item in value]
    return value


def check(function: Callable[..., Any], *makers: Callable[[], Any], backend: Any = "eager", whole: bool = True) -> list[str]:
    """As eager, in two calls, with what became of the arguments; the codes of the breaks."""
    expected, found = [], []
    compiled = stator.compile(function, backend=backend)
    with events.record() as log:
        for side, called in ((expected, function), (found, compiled)):
            for _ in range(2):
                args = [make() for make in makers]
                side.append(portrait([called(*args), args]))
    assert found == expected
    codes = [event.code for event in log if isinstance(event, events.GraphBreak)]
    assert not any(isinstance(event, events.EagerFallback) for event in log)
    assert not whole or not codes, codes
    return codes


def values(t: Any) -> Any:
    return (t + 1, t * 2, t.sum(), t.view(-1), t.T, t[0], t @ t.T, torch.cat([t, t]), t.split(1), t.unbind(),
            [row for row in t], t.detach(), t.clone(), t.to(torch.float64), 2 - t)


def facts(t: Any) -> Any:
    return (t.shape, t.dtype, t.size(), t.dim(), t.requires_grad, t.is_leaf, (t * 2).is_leaf, len(t), t.stride(), t.grad,
            type(t).__name__, isinstance(t, TwoTensor), t.__tensor_flatten__())


def parts(t: Any) -> Any:
    return t.a + 1, t.b, t.a, (t * 2).a, (t * 2).b + 1


def in_place(t: Any) -> Any:
    t.add_(1)
    t.a.mul_(2)
    return t * 2, t


def made(x: Any) -> Any:
    t = TwoTensor(x, x + 1)
    return t * 2, t.a, t, type(t).__name__


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [values, facts, parts, in_place])
def test_operations_on_the_wrapper_and_on_what_is_inside(function: Any, backend: str) -> None:
    check(function, two, backend=backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_wrappers_made_inside(backend: str) -> None:
    check(made, lambda: torch.ones(2, 3), backend=backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_plain_tensors_beside_it_and_wrappers_in_wrappers(backend: str) -> None:
    check(lambda t, x: (t + x, x * t, x + 1), two, lambda: torch.ones(2, 3), backend=backend)
    check(lambda t: (t * 2, t.a * 3, t.a.b, (t + 1).a.a), lambda: TwoTensor(two(), two()), backend=backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_gradients(backend: str) -> None:
    def use(t: Any, i: Any) -> Any:
        return (t * t).sum() + t.a.sum() + i.sum()

    grads = []
    for called in (use, stator.compile(use, backend=backend, fullgraph=True)):
        inner = torch.arange(4.0).requires_grad_()
        t = TwoTensor(inner, torch.ones(4, requires_grad=True))
        called(t, inner).sum().backward()
        grads.append(portrait([t.grad, inner.grad]))
    assert grads[0] == grads[1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_parameters_of_a_module(backend: str) -> None:
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        net.weight = torch.nn.Parameter(TwoTensor(net.weight.detach(), net.weight.detach() * 2))
        run = stator.compile(net, backend=backend, fullgraph=True) if compiled else net
        run(torch.ones(4, 3)).sum().backward()
        results.append(portrait([net.weight.grad, isinstance(net.weight, torch.nn.Parameter)]))
    assert results[0] == results[1]
    check(lambda p: isinstance(p, torch.nn.Parameter), lambda: torch.nn.Parameter(two()), backend=backend)


def test_the_context_is_guarded() -> None:
    graphs = 0

    def counting(gm: Any, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return gm

    compiled = stator.compile(lambda t: (t * 2).data_and_number(), backend=counting, fullgraph=True)
    for number, expected in ((1, 1), (1, 1), (5, 2)):
        data, seen = compiled(Offset(torch.ones(2), number))
        assert torch.equal(data, torch.full((2,), 2.0 + number)) and seen == number and graphs == expected
    check(lambda t: (t * 3).data_and_number(), lambda: Offset(torch.ones(2), 4), backend="aot_eager")


def test_what_is_inside_is_guarded() -> None:
    compiled = stator.compile(lambda t: (t + 1, t.a.dtype, t.a.requires_grad), backend="aot_eager", fullgraph=True)
    for inner in (torch.ones(2), torch.ones(2, dtype=torch.float64), torch.ones(2, requires_grad=True), torch.ones(3)):
        t = TwoTensor(inner, inner.detach().clone().requires_grad_(inner.requires_grad))
        assert portrait(compiled(t)) == portrait((t + 1, inner.dtype, inner.requires_grad))
    graphs: list[Any] = []
    nested = stator.compile(lambda t: t + 1, backend=lambda gm, inputs: graphs.append(gm) or gm, fullgraph=True)
    for t in (two(), TwoTensor(two(), two()), two()):  # alike from outside
        assert portrait(nested(t)) == portrait(t + 1)
    assert len(graphs) == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_inputs_that_share_memory(backend: str) -> None:
    def use(t: Any, x: Any) -> Any:
        x.add_(1)
        return t * 1

    results = []
    for compiled in (False, True):
        run = stator.compile(use, backend=backend) if compiled else use
        for shared in (False, True):
            t = two()
            x = t.a if shared else torch.ones(2, 3)
            results.append(portrait([run(t, x), t, x]))
    assert results[:2] == results[2:]


def test_breaks() -> None:
    assert "SB003" in check(lambda t: t.sum().item(), two, whole=False)
    assert "SB002" in check(lambda t: 1 if t.a.sum() > 0 else 2, two, whole=False)

    def stops(t: Any) -> Any:
        y = t + 1
        stator.graph_break()
        return y * 2, y.a
    assert check(stops, two, whole=False) == ["SB009"]
    assert "SB017" in check(lambda t: t.sum() * 2, lambda: Hidden(torch.ones(2)), whole=False)
    assert "SB017" in check(lambda t: Hidden(t).sum() * 2, lambda: torch.ones(2), whole=False)


class Closed(torch.Tensor):
    """Says nothing of what it is made of."""

    _data: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, data: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, data.size(), dtype=data.dtype)  # type: ignore[attr-defined]

    def __init__(self, data: torch.Tensor) -> None:
        self._data = data

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = pytree.tree_map_only(Closed, lambda each: each._data, (args, kwargs or {}))
        return func(*args, **kwargs)


OUTSIDE = {"closed": Closed(torch.ones(3))}


@pytest.mark.parametrize("program", [
    lambda x: x + OUTSIDE["closed"], lambda x: torch.stack([x, OUTSIDE["closed"]]),
    lambda x: torch.add(x, other=OUTSIDE["closed"]), lambda x: torch.where(x > 0, x, OUTSIDE["closed"]),
])  # fmt: skip
def test_one_that_is_closed_breaks(program: Any) -> None:
    x = torch.arange(3.0)
    assert torch.equal(stator.compile(program, backend="eager")(x), program(x))
    with pytest.raises(stator.Unsupported, match="SB017"):
        stator.compile(program, backend="eager", fullgraph=True)(x)


class Coded(torch.Tensor):
    """A state of an optimiser: it can be written and read, and nothing else."""

    @staticmethod
    def __new__(cls, codes: torch.Tensor, form: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, form, dtype=torch.float32)  # type: ignore[attr-defined]

    def __init__(self, codes: torch.Tensor, form: Any) -> None:
        self.codes, self.form = codes, form

    def __tensor_flatten__(self) -> Any:
        return ["codes"], [self.form]

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any = None, stride: Any = None) -> Any:
        return Coded(inner["codes"], *context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.copy_.default:
            args[0].codes.copy_((args[1].flatten() * 4).to(torch.int8))
            return args[0]
        if func is torch.ops.aten.add.Tensor:
            return args[0].codes.view(args[0].form) / 4 + args[1]
        raise NotImplementedError(f"{func}")

    def __repr__(self) -> str:
        return f"Coded({self.codes!r})"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_wrapper_keeps_the_class_of_the_sizes_that_it_is_given(backend: str) -> None:
    made = stator.compile(lambda x: Coded(torch.zeros(x.numel(), dtype=torch.int8), x.shape), backend=backend)
    for sizes in ((2, 3), (3, 3), (4, 3)):
        state = made(torch.ones(sizes))
        assert type(state.form) is torch.Size and state.form == sizes


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_written_wrapper_is_put_back_by_its_parts(backend: str) -> None:
    """It has no `clone`; a graph that fails after the write is run again from what it found."""
    def step(state: Any, x: Any, places: Any) -> Any:
        found = state + x
        state.copy_(found)
        return found.index_select(0, places)

    eager, compiled = [Coded(torch.zeros(6, dtype=torch.int8), torch.Size((2, 3))) for _ in range(2)]
    run = stator.compile(step, backend=backend)
    for number in range(4):
        x, places = torch.full((2, 3), 1.25), torch.tensor([number % 2 * 5])
        outcomes = []
        for function, state in ((step, eager), (run, compiled)):
            try:
                outcomes.append(function(state, x, places).tolist())
            except IndexError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
        assert torch.equal(eager.codes, compiled.codes)
