"""Programs of equal layers, captured with replay and without.   agree(make, x, played=3)

In: a maker of a module, its arguments and how many modules of the watched class are expected to be replayed.  Out:
an assertion where the graphs differ in a node, the guards in one, or the results from eager.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import stator
from stator import events
from stator.interp.replay.layer_replay import Replay

DEPTH = 4
COUNTED: dict[str, int] = {"calls": 0}  # what layers change outside; both are emptied before a program runs
SEEN: dict[Any, int] = {}


class Layer(nn.Module):
    scale = 2.0

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.second(torch.relu(self.first(x))) * self.scale)


class Stack(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 1  # the first layer gets a tensor of the trace, too
        for layer in self.layers:
            x = layer(x)
        return x


@contextlib.contextmanager
def counting(cls: type) -> Iterator[list[str]]:
    """The modules of a class that are replayed, by their source."""
    found: list[str] = []
    play = Replay.play

    def noted(self: Replay, template: Any, images: Any, said: Any, tensors: Any) -> Any:
        if any(type(image) is cls for image in images[:1]):
            found.append(said.root.text())
        return play(self, template, images, said, tensors)

    Replay.play = noted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Replay.play = play  # type: ignore[method-assign]


def look(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ("tensor", tuple(value.shape), value.stride(), value.dtype, value.device, value.requires_grad)
    if isinstance(value, (tuple, list)):
        return (type(value), *map(look, value))
    return value


def portrait(graph: torch.fx.GraphModule) -> list[Any]:
    """Everything a backend can see of each node."""
    return [(node.op, node.name, node.target, str(node.args), str(node.kwargs),
             {key: look(value) for key, value in node.meta.items()}) for node in graph.graph.nodes]


def capture(program: Any, args: tuple[Any, ...], replay: bool) -> tuple[Any, list[Any], list[Any], Any]:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = stator.compile(program, backend=backend, options={"replay": replay, "strict": True})
    with events.record() as log, contextlib.redirect_stdout(io.StringIO()) as printed:
        value = compiled(*args)
    guards = [{(guard.key, guard.where) for guard in event.guard_list}
              for event in log if isinstance(event, events.CaptureFinished)]
    return (value, printed.getvalue()), graphs, guards, compiled


def agree(make: Callable[[], Any], *args: Any, played: int | None, watched: type = Layer, grad: bool = False) -> Any:
    """Capture both ways and eagerly; answers the program compiled with replay."""
    answers = []
    for replay in (None, False, True):
        torch.manual_seed(0)
        COUNTED["calls"] = 0
        SEEN.clear()
        torch.utils.hooks.RemovableHandle.next_id = 0  # part of the guards of a hook
        program = make()
        torch.manual_seed(1)
        with torch.set_grad_enabled(grad), counting(watched) as found:
            if replay is None:
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    answers.append(((program(*args), printed.getvalue()), COUNTED["calls"]))
            else:
                value, graphs, guards, compiled = capture(program, args, replay)
                answers.append((value, COUNTED["calls"]))
        if replay is False:
            slow, slow_guards = [portrait(graph) for graph in graphs], texts(guards)
            assert not found
    torch.testing.assert_close(answers[1][0][0], answers[0][0][0])
    torch.testing.assert_close(answers[2][0][0], answers[0][0][0])
    assert answers[0][0][1] == answers[1][0][1] == answers[2][0][1]
    assert answers[0][1] == answers[1][1] == answers[2][1]
    assert [portrait(graph) for graph in graphs] == slow
    assert texts(guards) == slow_guards
    if played is not None:
        assert len(found) == played, found
    return compiled, program


def texts(guards: list[Any]) -> list[Any]:
    """Guards in words: the two captures are of two models, whose objects differ."""
    return [sorted((key[0].text(), key[1], str(where)) for key, where in each) for each in guards]


def stack(change: Callable[[list[Any]], None] = lambda layers: None, cls: type = Layer) -> Callable[[], Any]:
    def make() -> Any:
        layers = [cls() for _ in range(DEPTH)]
        change(layers)
        return Stack(layers).eval()
    return make


X = torch.randn(2, 8, generator=torch.Generator().manual_seed(3))
