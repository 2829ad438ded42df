"""Full backward hooks of modules in captured backward passes, beside eager: gradients, and the calls in their order."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import register_module_full_backward_hook

import stator
from tests.torch_api.side_by_side import Make, Register, World, compare
from tests.training.step_programs import batch, look_at, network, values

CAPTURED, BROKEN = Register(), Register()
BACKENDS = ("eager", "aot_eager")


def hooked(register: Callable[[nn.Sequential, list[Any]], object], *middle: nn.Module, passes: int = 1) -> World:
    """A step of a network whose modules have hooks; they may use the list."""
    model = network(*middle)
    seen: list[Any] = []
    register(model, seen)
    optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        for _ in range(passes):
            loss = F.mse_loss(model(x), y)
            loss.backward()
        optimiser.step()
        return loss, len(seen)
    return World(step, batch, lambda: (look_at(model, optimiser)(), list(seen)))


@CAPTURED
def gradients_noted() -> World:
    def register(model: Any, seen: list[Any]) -> None:
        for number, each in enumerate(model):
            each.register_full_backward_hook(
                lambda module, into, out, number=number: seen.append((number, into, out[0].norm())))
    return hooked(register)


@CAPTURED
def gradients_changed() -> World:
    def register(model: Any, seen: list[Any]) -> None:
        model[1].register_full_backward_hook(lambda module, into, out: (into[0] * 0.5 + out[0],))
        model[1].register_full_backward_hook(lambda module, into, out: seen.append(into[0]))
        model[1].register_full_backward_pre_hook(lambda module, out: (out[0].clamp(-0.01, 0.01),))
        model[2].register_full_backward_pre_hook(lambda module, out: seen.append(out[0]))
        model[2].register_full_backward_hook(lambda module, into, out: into)
    return hooked(register)


@CAPTURED
def several_passes() -> World:
    def register(model: Any, seen: list[Any]) -> None:
        model[0].register_full_backward_hook(lambda module, into, out: seen.append(out[0].sum()))
        model[2].register_full_backward_hook(lambda module, into, out: (into[0] * 2,))
    return hooked(register, passes=3)


@CAPTURED
def between_layers_of_a_compiler() -> World:
    def register(model: Any, seen: list[Any]) -> None:
        model[2].register_full_backward_hook(lambda module, into, out: (into[0].tanh(),))
        model[3].register_full_backward_pre_hook(lambda module, out: (out[0] * 0.5,))
    return hooked(register, nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU())


@CAPTURED
def used_by_later_hooks_and_behind_the_pass() -> World:
    model = network()
    held: dict[str, Any] = {"total": 0.0}

    def note(module: Any, into: Any, out: Any) -> None:
        held["total"] = held["total"] + out[0].abs().sum()
        held["last"] = out[0]

    for each in model:
        each.register_full_backward_hook(note)

    def step(x: Any, y: Any) -> Any:
        held["total"] = 0.0
        F.mse_loss(model(x), y).backward()
        held["last"].mul_(2)
        return held["total"] * 2, held["last"]
    return World(step, batch, lambda: (look_at(model)(), dict(held)))


@CAPTURED
def a_gradient_kept_by_a_hook() -> World:
    """The gradient of the bias would be the very tensor that the hook has kept."""
    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(values(6, 4))

        def forward(self, x: Any) -> Any:
            return x + self.bias
    model, kept = Shift(), []
    model.register_full_backward_hook(lambda module, into, out: kept.append(out[0]))

    def step(x: Any, y: Any) -> Any:
        model.bias.grad = None
        model(x).backward(x * 2)
        model.bias.grad.add_(1)
        return model.bias.grad
    return World(step, batch, lambda: (model.bias.grad, list(kept)))


@CAPTURED
def a_branch_around_the_module() -> World:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    model, seen = nn.ModuleList([first, second]), []
    second.register_full_backward_hook(lambda module, into, out: seen.append(into[0]) or (into[0] * 0.1,))

    def step(x: Any, y: Any) -> Any:
        hidden = first(x)
        loss = (hidden + second(hidden).tanh()).pow(2).sum()
        loss.backward()
        return loss.detach()
    return World(step, batch, lambda: (look_at(model)(), list(seen)))


@CAPTURED
def of_all_modules() -> World:
    model, seen = network(), []

    def step(x: Any, y: Any) -> Any:
        handle = register_module_full_backward_hook(note)
        try:
            F.mse_loss(model(x), y).backward()
        finally:
            handle.remove()

    def note(module: Any, into: Any, out: Any) -> None:
        seen.append((type(module).__name__, out[0].sum()))
    return World(step, batch, lambda: (look_at(model)(), list(seen)))




@BROKEN
def a_hook_that_writes() -> World:
    def register(model: Any, seen: list[Any]) -> None:
        total = torch.zeros(8)
        seen.append(total)
        model[1].register_full_backward_hook(lambda module, into, out: seen.append(1))
        model[0].register_full_backward_hook(lambda module, into, out: total.add_(out[0].sum(0)) and None)
    return hooked(register)


@BROKEN
def a_hook_that_reads_numbers() -> World:
    def register(model: Any, seen: list[Any]) -> None:
        model[1].register_full_backward_hook(lambda module, into, out: seen.append(2))
        model[0].register_full_backward_hook(lambda module, into, out: seen.append(out[0].sum().item()))
    return hooked(register)


@BROKEN
def a_hook_that_reads_gradients_of_leaves() -> World:
    def register(model: Any, seen: list[Any]) -> None:
        model[1].register_full_backward_hook(
            lambda module, into, out: seen.append(model[2].weight.grad is None))
    return hooked(register)


@BROKEN
def hooks_of_leaves_too() -> World:
    def register(model: Any, seen: list[Any]) -> None:
        model[1].register_full_backward_hook(lambda module, into, out: seen.append("module"))
        model[2].weight.register_hook(lambda grad: seen.append("leaf"))
    return hooked(register)


@BROKEN
def a_hook_that_draws() -> World:
    def register(model: Any, seen: list[Any]) -> None:
        model[1].register_full_backward_hook(lambda module, into, out: (into[0] + torch.randn_like(into[0]),))
    return hooked(register)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", CAPTURED, ids=lambda make: make.__name__)
def test_captured(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    report = compare(make, 4, backend, 0.0 if backend == "eager" else 1e-5)
    assert report.causes == [] and report.fallbacks == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", BROKEN, ids=lambda make: make.__name__)
def test_equal_to_eager(make: Make, backend: str) -> None:
    report = compare(make, 4, backend, 0.0 if backend == "eager" else 1e-5)
    assert report.causes and not report.failures


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_added_and_removed_between_calls(backend: str) -> None:
    def make() -> World:
        model, seen, handles = network(), [], []

        def step(x: Any, y: Any) -> Any:
            model.zero_grad()
            F.mse_loss(model(x), y).backward()

        def arguments(i: int) -> Any:
            if i == 2:
                handles.append(model[1].register_full_backward_hook(lambda module, into, out: seen.append(out[0])))
            if i == 4:
                handles.pop().remove()
            return batch(i)
        return World(step, arguments, lambda: (look_at(model)(), list(seen)))
    assert compare(make, 6, backend, 0.0 if backend == "eager" else 1e-5).causes == []


def test_the_warning_about_inputs_without_gradients() -> None:
    def noted(compiled: bool) -> Any:
        torch.manual_seed(0)
        model, seen = network(), []
        model[0].register_full_backward_hook(lambda module, into, out: seen.append((into, out[0].sum().detach())))

        def step(x: Any, y: Any) -> None:
            F.mse_loss(model(x), y).backward()
        run = stator.compile(step, backend="eager", fullgraph=True) if compiled else step
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for number in range(2):
                run(*batch(number))
        return [(str(each.message), each.filename, each.lineno) for each in found], [
            (into, out.item()) for into, out in seen]
    assert noted(True) == noted(False)
    assert len(noted(False)[0]) == 2


def test_a_second_pass_raises_as_eager() -> None:
    def ending(compiled: bool) -> Any:
        torch.manual_seed(0)
        model, seen = network(), []
        model[1].register_full_backward_hook(lambda module, into, out: seen.append(1))

        def step(x: Any) -> Any:
            loss = model(x).pow(2).sum()
            loss.backward()
            return loss
        run = stator.compile(step, backend="eager") if compiled else step
        loss = run(values(2, 4))
        with pytest.raises(RuntimeError, match="second time") as raised:
            loss.backward()
        return str(raised.value), seen
    assert ending(True) == ending(False)
