"""Entries that one compile() call made and another one of the same function uses: one graph for layers that are alike."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import stator

pytestmark = pytest.mark.shares_entries


class Counter:
    """A backend that counts what it compiles."""

    def __init__(self) -> None:
        self.compiled = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        self.compiled += 1
        return gm


class Layer(torch.nn.Module):
    def __init__(self, width: int = 4, scale: float = 2.0) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.scale = scale
        self.calls = 0
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = self.linear(torch.sin(x)) * self.scale
        self.mean.add_(y.detach().mean(0))
        return y


def same_calls(layers: list[torch.nn.Module], compiled: list[Any], x: torch.Tensor) -> None:
    for layer, run in zip(layers, compiled, strict=True):
        expected_mean = layer.mean.clone() + (layer.linear(torch.sin(x)) * layer.scale).detach().mean(0)
        expected = layer.linear(torch.sin(x)) * layer.scale
        calls = layer.calls
        assert torch.equal(run(x), expected)
        assert layer.calls == calls + 1
        assert torch.equal(layer.mean, expected_mean)


def test_layers_of_one_class_share_a_graph_and_keep_their_own_state() -> None:
    counter = Counter()
    layers = [Layer() for _ in range(4)]
    compiled = [stator.compile(layer, backend=counter) for layer in layers]
    x = torch.randn(3, 4)
    for _ in range(2):
        same_calls(layers, compiled, x)
    # `self.calls` is a number that changes: a second compile makes it a symbol, and that one serves all, too.
    assert counter.compiled <= 2


def test_gradients_go_to_the_layers_own_parameters() -> None:
    counter = Counter()
    layers = [torch.nn.Linear(4, 4) for _ in range(3)]
    compiled = [stator.compile(layer, backend=counter) for layer in layers]
    x = torch.randn(2, 4)
    for layer, run in zip(layers, compiled, strict=True):
        run(x).sum().backward()
        assert torch.equal(layer.weight.grad, torch.autograd.grad(layer(x).sum(), layer.weight)[0])
    assert counter.compiled == 1


def test_compiled_in_place() -> None:
    counter = Counter()
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
    x = torch.randn(2, 4, requires_grad=True)
    expected = model(x)
    for layer in model:
        stator.compile_in_place(layer, backend=counter)
    assert torch.equal(model(x), expected)
    assert counter.compiled == 1


@pytest.mark.parametrize("change", ["width", "scale", "hook", "frozen", "class"])
def test_a_layer_that_differs_has_its_own(change: str) -> None:
    class Other(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1

    counter = Counter()
    one = Layer()
    other = {"width": Layer(5), "scale": Layer(scale=3.0), "class": Other()}.get(change, Layer())
    if change == "hook":
        other.linear.register_forward_hook(lambda module, args, result: result * 10)
    elif change == "frozen":
        other.linear.weight.requires_grad_(False)
    runs = [stator.compile(layer, backend=counter) for layer in (one, other)]
    for layer, run in zip((one, other), runs, strict=True):
        x = torch.randn(3, layer.linear.in_features)
        eager = Layer.forward(layer, x) + (1 if change == "class" and layer is other else 0)
        result = run(x)
        assert torch.equal(result, eager)
        assert result.requires_grad == eager.requires_grad
    assert counter.compiled == 2


def test_closures_over_numbers_share_a_graph_with_a_symbol() -> None:
    def make(k: int) -> Any:
        def f(x: torch.Tensor) -> torch.Tensor:
            return x + k

        return f

    counter = Counter()
    x = torch.ones(2)
    for k in (1, 2, 3):
        assert torch.equal(stator.compile(make(k), backend=counter)(x), x + k)
    assert counter.compiled == 2


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_another_backend_or_setting_compiles_again() -> None:
    first, second = Counter(), Counter()
    x = torch.ones(3)
    for counter, settings in ((first, {}), (first, {}), (second, {}), (first, {"dynamic": True})):
        assert torch.equal(stator.compile(double, backend=counter, **settings)(x), x * 2)
    assert (first.compiled, second.compiled) == (2, 1)


def test_sharing_is_turned_off() -> None:
    counter = Counter()
    for _ in range(2):
        stator.compile(double, backend=counter, isolate_recompiles=True)(torch.ones(3))
    assert counter.compiled == 2
    stator.install()
    try:
        for _ in range(2):
            torch.compile(double, backend=counter, isolate_recompiles=True)(torch.ones(3))
    finally:
        stator.uninstall()
    assert counter.compiled == 4


def test_after_a_reset_nothing_is_left_to_share() -> None:
    counter = Counter()
    one, other = (stator.compile(double, backend=counter) for _ in range(2))
    one(torch.ones(3))
    stator.reset()
    other(torch.ones(3))
    assert counter.compiled == 2


class Breaking(torch.nn.Module):
    def __init__(self, shift: float) -> None:
        super().__init__()
        self.shift = torch.nn.Parameter(torch.tensor(shift))
        self.seen: list[float] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.shift
        stator.graph_break()
        self.seen.append(float(self.shift))
        return y * self.shift


def test_what_follows_a_break_is_shared_too() -> None:
    counter = Counter()
    layers = [Breaking(shift) for shift in (1.0, 2.0, 3.0)]
    x = torch.ones(2)
    for layer in layers:
        run = stator.compile(layer, backend=counter)
        for _ in range(2):
            assert torch.equal(run(x), (x + layer.shift) * layer.shift)
    assert [layer.seen for layer in layers] == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    alone = Counter()
    stator.compile(Breaking(1.0), backend=alone)(x)
    assert counter.compiled == alone.compiled


def test_a_size_that_changed_for_one_layer_is_open_for_the_next() -> None:
    counter = Counter()
    layers = [torch.nn.Linear(4, 4) for _ in range(3)]
    compiled = [stator.compile(layer, backend=counter) for layer in layers]
    for batch in (2, 3, 5):
        x = torch.randn(batch, 4)
        for layer, run in zip(layers, compiled, strict=True):
            assert torch.equal(run(x), layer(x))
    assert counter.compiled == 2


def test_under_fail_on_recompile_an_entry_of_another_serves() -> None:
    counter = Counter()
    layers = [torch.nn.Linear(4, 4) for _ in range(2)]
    one, other = (stator.compile(layer, backend=counter) for layer in layers)
    x = torch.randn(2, 4)
    one(x)
    with stator.set_stance("fail_on_recompile"):
        assert torch.equal(other(x), layers[1](x))


def test_a_layer_that_comes_to_differ_is_compiled_again() -> None:
    counter = Counter()
    layers = [Layer() for _ in range(2)]
    compiled = [stator.compile(layer, backend=counter) for layer in layers]
    x = torch.randn(3, 4)
    for run in compiled:
        run(x)
    layers[1].scale = 5.0
    assert torch.equal(compiled[1](x), layers[1].linear(torch.sin(x)) * 5.0)
    layers[1].linear.weight.data = torch.zeros(4, 4)
    assert torch.equal(compiled[1](x), layers[1].linear.bias.expand(3, 4) * 5.0)
    assert torch.equal(compiled[0](x), layers[0].linear(torch.sin(x)) * 2.0)


def test_explain_shows_a_call_that_another_compile_has_captured() -> None:
    stator.compile(double, backend="eager")(torch.ones(3))
    assert stator.explain(double)(torch.ones(3)).graphs


def test_a_size_that_the_user_calls_open_is_not_served_by_an_entry_that_pins_it_down() -> None:
    counter = Counter()
    stator.compile(double, backend=counter)(torch.ones(3))
    marked = torch.ones(3)
    stator.mark_dynamic(marked, 0)
    compiled = stator.compile(double, backend=counter)
    for size in (marked, torch.ones(4), torch.ones(5)):
        assert torch.equal(compiled(size), size * 2)
    assert counter.compiled == 2


def test_a_list_that_holds_itself() -> None:
    def program(x: torch.Tensor, values: list[Any]) -> torch.Tensor:
        return x + len(values)

    values: list[Any] = [1]
    values.append(values)
    for compiled in [stator.compile(program, backend="eager") for _ in range(2)]:
        assert torch.equal(compiled(torch.ones(2), values), torch.full((2,), 3.0))


SCALE, LOCK = [2.0], threading.Lock()


def refusing(x: torch.Tensor) -> torch.Tensor:
    if x.dim() == 1:
        raise ValueError("flat")
    return x * 2


def locked(x: torch.Tensor) -> torch.Tensor:
    with LOCK:
        return x * SCALE[0]


def test_what_has_no_graph_or_waits_for_a_lock_is_made_for_each_place() -> None:
    for _ in range(3):
        run = stator.compile(refusing, backend="eager")
        for _ in range(2):
            with pytest.raises(ValueError, match="flat"):
                run(torch.ones(3))
        assert torch.equal(run(torch.ones(3, 1)), torch.full((3, 1), 2.0))
    counter = Counter()
    for scale in (2.0, 2.0, 5.0):
        SCALE[0] = scale
        assert stator.compile(locked, backend=counter)(torch.ones(2)).tolist() == [scale] * 2
        assert not LOCK.locked()
    assert counter.compiled == 2  # each place has an entry of its own; equal graphs are compiled once


@pytest.mark.parametrize("held", [False, True])
def test_sizes_that_the_user_marks_are_open(held: bool) -> None:
    """An entry for one size fits the call, but says nothing of the others."""
    def given(size: int) -> Any:
        x = torch.ones(size)
        return [[x]] if held else x, x

    counter = Counter()
    one, other = (stator.compile(double_held if held else double, backend=counter) for _ in range(2))
    one(given(3)[0])
    value, x = given(3)
    stator.mark_dynamic(x, 0)
    assert torch.equal(other(value), x * 2) and counter.compiled == 2
    for size in (4, 5):
        value, x = given(size)
        stator.mark_dynamic(x, 0)
        assert torch.equal(other(value), x * 2)
    assert counter.compiled == 2


def double_held(xs: list[list[torch.Tensor]]) -> torch.Tensor:
    return xs[0][0] * 2
