"""Compiled functions, methods and modules inside code that is being compiled are part of the trace."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch

import stator
from stator.errors import Unsupported

X = torch.ones(2)


def one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def two(x: torch.Tensor) -> torch.Tensor:
    return x * 10


class Holder:
    def __init__(self, function: Any) -> None:
        self.function = function


def test_another_compiled_function_as_an_argument_is_another_program() -> None:
    first, second = stator.compile(one, backend="eager"), stator.compile(two, backend="eager")
    apply = stator.compile(lambda f, x: f(x) * 2, backend="eager")
    held = stator.compile(lambda holder, x: holder.function(x) * 2, backend="eager")
    for _ in range(2):
        assert apply(first, X).tolist() == [4, 4] and apply(second, X).tolist() == [20, 20]
    holder = Holder(first)
    assert held(holder, X).tolist() == [4, 4]
    holder.function = second
    assert held(holder, X).tolist() == [20, 20]


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = 0
        self.w = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n += 1
        return x * self.w * self.n

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward(x) - 1


@pytest.mark.parametrize("kind", ["module", "method", "in place", "member", "argument"])
def test_the_trace_changes_nothing_of_a_compiled_object(kind: str) -> None:
    module, twin = Counting(), Counting()
    shift = 0 if kind == "method" else 1
    called: Any = module
    if kind == "method":
        called = stator.compile(module.method, backend="eager")
    elif kind == "in place":
        stator.compile_in_place(module, backend="eager")
    else:
        called = stator.compile(module, backend="eager")
    if kind == "member":
        outer = torch.nn.Sequential(called)
        program = stator.compile(lambda x: outer(x) + 1, backend="eager", fullgraph=True)
    elif kind == "argument":
        taking = stator.compile(lambda called, x: called(x) + 1, backend="eager", fullgraph=True)
        program = lambda x: taking(called, x)  # noqa: E731
    else:
        program = stator.compile(lambda x: called(x) + 1, backend="eager", fullgraph=True)
    for turn in range(1, 4):
        assert torch.equal(program(X), twin(X) + shift)
        assert module.n == turn
    module.w.data = torch.full((2,), 3.0)
    twin.w.data = torch.full((2,), 3.0)
    result = program(X)
    assert torch.equal(result, twin(X) + shift)
    result.sum().backward()
    assert module.w.grad.tolist() == [4.0, 4.0]


def test_a_break_inside_shows_under_fullgraph() -> None:
    def breaking(x: torch.Tensor) -> torch.Tensor:
        stator.graph_break()
        return x + 1

    inner = stator.compile(breaking, backend="eager")
    assert stator.compile(lambda x: inner(x) * 2, backend="eager")(X).tolist() == [4, 4]
    with pytest.raises(Unsupported):
        stator.compile(lambda x: inner(x) * 2, backend="eager", fullgraph=True)(X)


# ---------------------------------------------------------------------- copies


@stator.compile(backend="eager")
def module_level(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_copies_and_pickles() -> None:
    assert copy.deepcopy(module_level) is module_level and copy.copy(module_level) is module_level
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    module = Counting()
    module.step = stator.compile(module.method, backend="eager")
    twin = copy.deepcopy(module)
    assert twin.step(X).tolist() == [0, 0] and (module.n, twin.n) == (0, 1)
    back = pickle.loads(pickle.dumps(module))
    assert back.step(X).tolist() == [0, 0] and (module.n, back.n) == (0, 1)


# ---------------------------------------------------------------------- as libraries use torch.compile


@pytest.fixture
def installed() -> Any:
    stator.install()
    yield
    stator.uninstall()


@pytest.mark.usefixtures("installed")
def test_libraries_know_a_compiled_module() -> None:
    optimized = pytest.importorskip("torch._dynamo").OptimizedModule
    made: list[str] = []

    class Base(torch.nn.Module):
        def __init_subclass__(cls) -> None:
            made.append(cls.__name__)

    class Net(Base):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    class Table(torch.nn.Module, dict):  # type: ignore[type-arg]
        pass

    net = Net()
    compiled = torch.compile(net, backend="eager")
    assert isinstance(compiled, optimized) and isinstance(compiled, Net) and isinstance(compiled, torch.nn.Module)
    assert not isinstance(compiled, Table) and not isinstance(net, optimized)
    assert compiled.__class__.__name__ == "Net" and compiled._orig_mod is net
    assert made == ["Net"]
    assert isinstance(torch.compile(Table(), backend="eager"), Table)
    inside = torch.compile(lambda m, x: m(x) if isinstance(m, Net) else x, backend="eager", fullgraph=True)
    assert inside(compiled, X).tolist() == [2, 2]
    stator.uninstall()
    assert compiled.__class__ is Net


@pytest.mark.usefixtures("installed")
def test_steps_are_compiled_as_lightning_does_it() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x)

        def training_step(self, x: torch.Tensor) -> torch.Tensor:
            return self(x).sum()

    net = Net()
    graphs: list[Any] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        graphs.append(gm)
        return gm

    compiled = torch.compile(net, backend=backend)
    before = net.forward
    net.forward = compiled.dynamo_ctx(net.forward)
    net.training_step = compiled.dynamo_ctx(net.training_step)
    loss = net.training_step(X)
    assert len(graphs) == 1
    net.forward = before
    assert torch.equal(loss, net(X).sum())


@pytest.mark.usefixtures("installed")
def test_a_module_compiled_in_place_is_scripted() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    model.compile(backend="eager")
    expected = model(X)
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(model), buffer)
    buffer.seek(0)
    assert torch.equal(torch.jit.load(buffer)(X), expected)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("change, settings", [
    ({}, (None, 8)), ({"recompile_limit": 3}, (None, 3)), ({"assume_static_by_default": False}, (True, 8)),
    ({"automatic_dynamic_shapes": False}, (False, 8))])
def test_what_scripts_set_in_torchs_config_counts(change: dict[str, Any], settings: tuple[Any, ...]) -> None:
    config = pytest.importorskip("torch._dynamo").config
    with config.patch(change):
        compiled = torch.compile(one, backend="eager")
        given = torch.compile(one, backend="eager", dynamic=False, recompile_limit=5)
    found = compiled._stator_site.settings
    assert (found.dynamic, found.recompile_limit) == settings
    assert (given._stator_site.settings.dynamic, given._stator_site.settings.recompile_limit) == (False, 5)


def scaled(x: torch.Tensor, factor: int | None = None) -> torch.Tensor:
    return x * (2 if factor is None else factor)


def compiled_and_called(x: Any) -> Any:
    return stator.compile(scaled, backend="eager")(x)


def decorated(x: Any) -> Any:
    @stator.compile(backend="eager", fullgraph=True)
    def inner(y: Any) -> Any:
        return y + x
    return inner(x * 2)


def looked_at(x: Any) -> Any:
    compiled = stator.compile(scaled, backend="eager")
    table = {compiled: 1}
    return type(compiled), compiled is scaled, callable(compiled), compiled.__name__, table[compiled], compiled(x, 3)


def called_after_a_break(x: Any) -> Any:
    compiled = stator.compile(scaled, backend="eager")
    stator.graph_break()
    return compiled(x, 5)


def refused(x: Any) -> Any:
    return stator.compile(scaled, backend="there is none")(x)


@pytest.mark.parametrize("program", [compiled_and_called, decorated, looked_at, called_after_a_break, refused],
                         ids=lambda program: program.__name__)
def test_a_function_compiled_inside_is_part_of_the_trace(program: Any) -> None:
    whole = program not in (called_after_a_break, refused)
    compiled = stator.compile(program, backend="eager", fullgraph=whole)
    for x in (X, X + 1, torch.ones(3)):
        outcomes = []
        for function in (program, compiled):
            try:
                outcomes.append(str(function(x)))
            except ValueError as error:
                outcomes.append(f"{type(error)}: {error}")
        assert outcomes[0] == outcomes[1]


def test_a_function_compiled_inside_that_is_kept_is_a_new_one_in_each_call() -> None:
    def outer(x: Any) -> Any:
        @stator.compile(backend="eager")
        def power(n: int) -> Any:
            return x if n == 0 else power(n - 1) * x
        power.note = [power, x]  # type: ignore[attr-defined]
        return power, power(2)

    compiled = stator.compile(outer, backend="eager", fullgraph=True)
    made = [compiled(X + 1) for _ in range(2)]
    assert made[0][0] is not made[1][0]
    for power, squared in made:
        assert type(power) is type(outer(X)[0]) and squared.tolist() == [8, 8] and power(3).tolist() == [16, 16]
        assert power.note[0] is power and power.note[1].tolist() == [2, 2] and power.__wrapped__.__name__ == "power"


def test_installed_torch_compile_inside_is_part_of_the_trace() -> None:
    def outer(x: Any) -> Any:
        return torch.compile(scaled, backend="eager")(x) + torch.compile(backend="eager")(one)(x)

    stator.install()
    try:
        assert stator.compile(outer, backend="eager", fullgraph=True)(X).tolist() == [4, 4]
    finally:
        stator.uninstall()
