"""Nothing of a trace outlives it: the program's objects die when the program lets go of them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

import stator
from stator.interp.vm import VM


def machines() -> int:
    gc.collect()
    return sum(type(each) is VM for each in gc.get_objects())


def trained(optimiser: Any) -> tuple[Any, Any, Any]:
    model = torch.nn.Linear(3, 3)
    chosen = optimiser(model.parameters(), lr=0.1)

    @stator.compile(backend="eager")
    def step() -> None:
        chosen.step()

    for _ in range(2):
        model(torch.ones(1, 3)).sum().backward()
        step()
    return model, chosen, step


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_an_optimisers_state(optimiser: Any) -> None:
    before = machines()
    model, chosen, step = trained(optimiser)
    assert machines() == before
    held = [weakref.ref(value) for state in chosen.state.values() for value in state.values()
            if isinstance(value, torch.Tensor)]
    held.append(weakref.ref(model.weight.grad))
    chosen.state.clear()
    chosen.zero_grad(set_to_none=True)
    gc.collect()
    assert [reference() for reference in held] == [None] * len(held)
    assert callable(step)


def test_everything() -> None:
    model, chosen, step = trained(torch.optim.Adam)
    held = [weakref.ref(each) for each in (model, model.weight, chosen)]
    del model, chosen, step
    gc.collect()
    assert [reference() for reference in held] == [None] * 3


def test_a_trace_that_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a bug of ours, too."""
    monkeypatch.setenv("STATOR_STRICT", "0")
    before = machines()

    class Box:
        pass

    def program(x: torch.Tensor, box: Box) -> torch.Tensor:
        y = x + 1
        return torch.relu(y)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("planted")

    box = Box()
    with monkeypatch.context() as patch:
        patch.setattr("stator.capture.trace.enter_modes", fail)
        with pytest.warns(RuntimeWarning, match="planted"):
            stator.compile(program, backend="eager")(torch.ones(2), box)
    reference = weakref.ref(box)
    del box
    gc.collect()
    assert reference() is None and machines() == before


def test_what_a_generator_that_waits_holds() -> None:
    """Its frame and its body refer to each other; what it holds must not wait for the collector."""
    class Held:
        pass

    def program(x: torch.Tensor, held: list[Held]) -> torch.Tensor:
        walk = (held[i] for i in range(3))
        next(walk)
        return x + 1

    held = [Held(), Held()]
    references = [weakref.ref(each) for each in held]
    collecting = gc.isenabled()
    gc.disable()
    try:
        compiled = stator.compile(program, backend="eager", fullgraph=True)
        compiled(torch.ones(2), held)
        held.clear()
        assert [reference() for reference in references] == [None, None]
    finally:
        if collecting:
            gc.enable()


def test_at_once() -> None:
    """Without a collection: what the shadows of a trace hold goes with the trace."""
    model = torch.nn.Linear(3, 3)
    optimiser = torch.optim.Adadelta(model.parameters(), lr=0.1)
    step = stator.compile(lambda: optimiser.step(), backend="eager")
    model(torch.ones(1, 3)).sum().backward()
    gc.collect()
    gc.disable()
    try:
        step()
        reference = weakref.ref(optimiser.state[model.weight]["square_avg"])
        optimiser = None  # type: ignore[assignment]
        assert reference() is None
    finally:
        gc.enable()
