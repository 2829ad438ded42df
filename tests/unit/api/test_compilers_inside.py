"""Captured code that compiles, asks or calls what was compiled before, by Stator or by torch.compile."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events
from stator.interp.rule_registry import RULES


def inner(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def compiles(x: torch.Tensor) -> torch.Tensor:
    return stator.compile(inner, backend="eager")(x) * 2


def compiles_with_torch(x: torch.Tensor) -> torch.Tensor:
    return torch.compile(inner, backend="eager")(x) * 2


def disables(x: torch.Tensor) -> torch.Tensor:
    @stator.disable
    def plain(y: torch.Tensor) -> torch.Tensor:
        return y + 1

    return plain(x) * 2


def explains(x: torch.Tensor) -> Any:
    return x + len(stator.explain(inner)(x).graphs)


@pytest.mark.parametrize("program", [compiles, compiles_with_torch, disables, explains])
def test_called_as_it_is(program: Any) -> None:
    compiled = stator.compile(program, backend="eager")
    for x in (torch.ones(2), torch.ones(2), torch.zeros(3)):
        assert torch.equal(compiled(x), program(x))


def test_torch_compiled_functions_are_part_of_the_trace() -> None:
    theirs = torch.compile(inner, backend="eager")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wrapped = torch.compile(nn.Linear(2, 2), backend="eager")
            self.in_place = nn.Linear(2, 2)
            self.in_place.compile(backend="eager")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.wrapped(x) + self.in_place(x) + theirs(x)

    model, x = Model(), torch.randn(1, 2)
    expected = model.wrapped._orig_mod(x) + nn.functional.linear(x, *model.in_place.parameters()) + inner(x)
    compiled = stator.compile(model, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(x), expected) and torch.allclose(compiled(x), expected)


def test_another_function_under_the_same_wrapper() -> None:
    theirs = torch.compile(inner, backend="eager")

    def program(x: torch.Tensor) -> torch.Tensor:
        return theirs(x)

    compiled, x = stator.compile(program, backend="eager", fullgraph=True), torch.ones(2)
    assert torch.equal(compiled(x), inner(x))
    theirs._torchdynamo_orig_callable = torch.cos
    assert torch.equal(compiled(x), torch.cos(x))


def test_what_torch_compile_does_to_every_module_and_optimiser_is_no_cause_to_break() -> None:
    torch.compile(inner, backend="eager")(torch.ones(1))  # from now on it keeps a table of modules, and disables steps

    def replaced(model: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
        before = model(x)
        model[0] = nn.Identity()
        return before + model(x)

    ours, theirs, x = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2)
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(stator.compile(replaced, backend="eager", fullgraph=True)(ours, x), replaced(theirs, x))
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimiser = torch.optim.Adam([weight], fused=True)
    stator.compile(optimiser.step, backend="eager", fullgraph=True)()
    assert torch.allclose(weight, torch.full((2,), 0.999))


def test_the_numbers_that_torchs_own_tracer_gives_to_modules_are_no_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once used, it patches nn.Module.__init__, which notes the number of its compiles."""
    guard = importlib.import_module("torch._dynamo.mutation_guard")
    for name in ("__init__", "__setstate__"):
        monkeypatch.setattr(nn.Module, name, getattr(nn.Module, name))
    monkeypatch.setattr(nn.Module, "___needs_generation_tag_patch", True, raising=False)
    monkeypatch.setattr(guard.GenerationTracker, "generation", 0)
    monkeypatch.delitem(RULES, id(guard.GenerationTracker.tag.__func__), raising=False)  # as if it came only now
    guard.install_generation_tagging_init()

    def program(x: Any) -> Any:
        return torch.nn.ReLU()(x) + 1

    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    captures = []
    for step in range(3):
        x = torch.tensor([-1.0, step])
        with events.record() as log:
            assert torch.equal(compiled(x), program(x))
        captures.append(sum(isinstance(event, events.CaptureFinished) for event in log))
        guard.GenerationTracker.generation += 1
    assert captures == [1, 0, 0]
