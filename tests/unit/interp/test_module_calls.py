"""Modules without hooks are called the short way, and nobody can tell: graphs, guards, frames, breaks, values."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events
from stator.capture import stages
from stator.interp.calls.module_calls import ModuleCalls
from tests.replayed_layers import portrait

Made = Callable[[], Any]


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return torch.relu(self.second(torch.tanh(self.first(x)))) * scale


class Plain(nn.Module):
    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> Any:
        for part in self.parts:
            x = part(x)
        return x


class Keywords(Plain):
    def forward(self, x: torch.Tensor) -> Any:
        for number, part in enumerate(self.parts):
            x = part(x, scale=number + 0.5) + part(**{"x": x})
        return x


class Own(nn.Module):
    """Its call differs from torch's."""

    def __call__(self, x: torch.Tensor) -> Any:
        return super().__call__(x) + 1

    def forward(self, x: torch.Tensor) -> Any:
        return x * 3


class Hidden(nn.Module):
    """A class attribute in the place of a table of hooks' name in the instance."""

    def forward(self, x: torch.Tensor) -> Any:
        return x - 1

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)


class Hooking(Plain):
    """Adds a hook to a part in the middle of the call, and takes it away."""

    def forward(self, x: torch.Tensor) -> Any:
        x = self.parts[0](x)
        handle = self.parts[1].register_forward_hook(lambda module, args, value: value + 100)
        x = self.parts[1](x)
        handle.remove()
        return self.parts[1](x)


class HookingAll(Plain):
    def forward(self, x: torch.Tensor) -> Any:
        x = self.parts[0](x)
        handle = nn.modules.module.register_module_forward_hook(lambda module, args, value: value * 2)
        try:
            x = self.parts[1](x)
        finally:
            handle.remove()
        return self.parts[1](x)


class Renamed(Plain):
    """Puts another forward into a part."""

    def forward(self, x: torch.Tensor) -> Any:
        x = self.parts[0](x)
        self.parts[1].forward = lambda value: value * 7  # type: ignore[method-assign]
        x = self.parts[1](x)
        del self.parts[1].forward
        return self.parts[1](x)


class Breaking(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        x = x + 1
        stator.graph_break()
        return x * 2


class Failing(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        raise ValueError("no")


class Caught(Plain):
    def forward(self, x: torch.Tensor) -> Any:
        x = self.parts[0](x)
        try:
            return self.parts[1](x)
        except ValueError as error:
            names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            return x, len(names), names.index("_call_impl")


class Rebound(nn.Module):
    """`__call__` of the instance is not looked at; `forward` of it is."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.forward = self.other  # type: ignore[method-assign]

    def other(self, x: torch.Tensor) -> Any:
        return self.inner(x) * 5


def hooked() -> nn.Module:
    block = Block()
    block.first.register_forward_hook(lambda module, args, value: value + 10)
    block.second.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    return block


PROGRAMS: dict[str, Made] = {
    "blocks": lambda: Plain(Block(), Block(), nn.Sequential(nn.ReLU(), nn.Linear(4, 4))),
    "keywords": lambda: Keywords(Block(), Block()),
    "own call": lambda: Plain(Block(), Own(), Own()),
    "own lookup": lambda: Plain(Block(), Hidden()),
    "hooks": lambda: Plain(Block(), hooked(), Block()),
    "hooks come and go": lambda: Hooking(Block(), Block()),
    "hooks of all modules": lambda: HookingAll(Block(), Block()),
    "another forward for a while": lambda: Renamed(nn.Tanh(), nn.Tanh()),
    "another forward": lambda: Plain(Block(), Rebound()),
    "a break inside": lambda: Plain(Block(), Breaking(), Block(), Breaking()),
    "an exception inside": lambda: Caught(Block(), Failing()),
    "one module twice": lambda: Plain(*[nn.Linear(4, 4)] * 3),
}


def capture(make: Made, x: torch.Tensor, short: bool, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    made: list[ModuleCalls] = []
    steps: list[int] = []
    init, trace = ModuleCalls.__init__, stages.trace

    def noted(self: ModuleCalls) -> None:
        init(self)
        self.enabled = short
        made.append(self)

    def traced(*args: Any) -> Any:
        done = trace(*args)
        steps.append(done.vm.steps)
        return done

    torch.manual_seed(0)
    torch.utils.hooks.RemovableHandle.next_id = 0  # part of the guards of a hook
    program, graphs = make(), []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(portrait(graph))
        return graph.forward

    with monkeypatch.context() as patched, torch.no_grad(), events.record() as log:
        patched.setattr(ModuleCalls, "__init__", noted)
        patched.setattr(stages, "trace", traced)
        compiled = stator.compile(program, backend=backend, options={"strict": True, "replay": False})
        values = [compiled(x), compiled(x)]
    finished = [event for event in log if isinstance(event, events.CaptureFinished)]
    return {"values": values, "graphs": graphs, "steps": steps, "short": sum(len(each.guarded) for each in made),
            "guards": [sorted((guard.source.text(), guard.kind, str(guard.where)) for guard in event.guard_list)
                       for event in finished],
            "breaks": [event.code for event in log if isinstance(event, events.GraphBreak)]}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_short_way_is_the_long_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, x = PROGRAMS[name], torch.randn(2, 4)
    torch.manual_seed(0)
    expected = make()(x)
    short, long = (capture(make, x, way, monkeypatch) for way in (True, False))
    for found in (short, long):
        for value in found["values"]:
            torch.testing.assert_close(value, expected)
    for what in ("graphs", "steps", "guards", "breaks"):
        assert short[what] == long[what], what
    assert long["short"] == 0


def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert capture(PROGRAMS["blocks"], torch.randn(2, 4), True, monkeypatch)["short"] == 8


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a hook": lambda block: block.second.register_forward_hook(lambda module, args, value: value + 10),
    "a pre-hook": lambda block: block.first.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
    "a hook of all modules": lambda block: nn.modules.module.register_module_forward_hook(
        lambda module, args, value: value * 3),
    "a forward of its own": lambda block: setattr(block.second, "forward", lambda value: value * 9),
    "a call of its own": lambda block: setattr(block.second, "_call_impl", lambda value: value * 11),
    "compiled by itself": lambda block: setattr(block.second, "_compiled_call_impl", lambda value: value * 13),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_a_call_later_is_seen(name: str) -> None:
    block, x = Block(), torch.randn(2, 4)
    compiled = stator.compile(block, backend="eager", options={"strict": True})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), block(x))
        change = CHANGES[name](block)
        try:
            torch.testing.assert_close(compiled(x), block(x))
        finally:
            if change is not None:
                change.remove()
        torch.testing.assert_close(compiled(x), block(x))


def test_a_class_that_changes_later_is_seen() -> None:
    class Part(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x + 1

    program, x = Plain(Block(), Part(), Part()), torch.randn(2, 4)
    compiled = stator.compile(program, backend="eager", options={"strict": True})
    torch.testing.assert_close(compiled(x), program(x))
    Part.forward = lambda self, x: x + 2  # type: ignore[method-assign, assignment]
    torch.testing.assert_close(compiled(x), program(x))
    Part._call_impl = lambda self, x: x + 3  # type: ignore[method-assign, assignment]
    torch.testing.assert_close(compiled(x), program(x))


class Asking(nn.Module):
    """Asks for members that are there, are not, and come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: torch.Tensor) -> Any:
        found = [hasattr(self, name) for name in ("inner", "scale", "training", "missing", "forward")]
        offset = getattr(self, "offset", 3)
        fresh = nn.ModuleList([self.inner])
        found += [hasattr(fresh, "0"), hasattr(fresh, "1"), hasattr(fresh[:1], "weight")]
        return self.inner(x) * getattr(self, "scale", 2) + offset, found


def test_absent_members_are_answered_and_guarded() -> None:
    program, x = Asking(), torch.randn(2, 4)
    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    for change in (lambda: None, lambda: setattr(program, "offset", 5), lambda: program.register_buffer("missing", x),
                   lambda: delattr(program, "scale"), lambda: delattr(program, "offset")):
        change()
        torch.testing.assert_close(compiled(x), program(x))


def test_a_module_that_was_not_initialised_is_asked_as_ever() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:  # torch's own is not called
            pass

    def program(x: torch.Tensor) -> Any:
        bare = Bare.__new__(Bare)
        return x + 1, hasattr(bare, "weight"), getattr(bare, "weight", 7)

    x = torch.randn(3)
    compiled = stator.compile(program, backend="eager", options={"strict": True})
    torch.testing.assert_close(compiled(x), program(x))
