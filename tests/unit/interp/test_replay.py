"""Repeated structure: a replayed layer is what a traced layer would have been, and a layer that differs is traced.

Each program is captured twice, with replay and without: graphs node for node, guards one by one, results against
eager. `played` says how many modules of the watched class were replayed.
"""

from __future__ import annotations

import contextlib
import io
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events
from stator.interp.replay import Replay

DEPTH = 4
COUNTED: dict[str, int] = {"calls": 0}
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

    def noted(self: Replay, template: Any, images: Any, sources: Any, tensors: Any) -> Any:
        if any(type(image) is cls for image in images[:1]):
            found.append(sources[0].text())
        return play(self, template, images, sources, tensors)

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


def test_equal_layers_are_replayed() -> None:
    agree(stack(), X, played=DEPTH - 1)


def test_the_option_turns_it_off() -> None:
    with counting(Layer) as found, torch.no_grad():
        stator.compile(stack()(), backend="eager", options={"replay": False})(X)
    assert not found
    with pytest.raises(stator.errors.OptionTypeError):
        stator.compile(stack()(), options={"replay": 2})


# ---------------------------------------------------------------------- layers that differ


def set_attribute(name: str, value: Any) -> Callable[[list[Any]], None]:
    return lambda layers: setattr(layers[2], name, value)


def hook(layers: list[Any]) -> None:
    layers[2].register_forward_hook(lambda module, args, out: out + 1)


def inner_hook(layers: list[Any]) -> None:
    layers[2].first.register_forward_pre_hook(lambda module, args: (args[0] * 2,))


def override(layers: list[Any]) -> None:
    layers[2].forward = lambda x: x * 3


def frozen(layers: list[Any]) -> None:
    layers[2].first.weight.requires_grad_(False)


def other_dtype(layers: list[Any]) -> None:
    layers[2].norm = nn.LayerNorm(8, eps=0.5)


def no_bias(layers: list[Any]) -> None:
    layers[2].first = nn.Linear(8, 8, bias=False)


def replaced(layers: list[Any]) -> None:
    layers[2].first.weight = nn.Parameter(torch.ones(8, 8).t())


def strided(layers: list[Any]) -> None:
    layers[2].first.weight = nn.Parameter(torch.randn(8, 16)[:, ::2])


@pytest.mark.parametrize("change", [
    hook, inner_hook, override, frozen, other_dtype, no_bias, strided, set_attribute("scale", 3.0)])
def test_a_layer_that_differs_is_traced(change: Callable[[list[Any]], None]) -> None:
    agree(stack(change), X, played=DEPTH - 2 if change is not strided else None)


def test_a_difference_that_nobody_reads() -> None:
    agree(stack(set_attribute("training", True)), X, played=DEPTH - 1)
    agree(stack(set_attribute("name", "other")), X, played=DEPTH - 1)


def test_a_replaced_parameter_of_the_same_kind() -> None:
    agree(stack(lambda layers: setattr(layers[2].first, "weight", nn.Parameter(torch.ones(8, 8)))), X, played=DEPTH - 1)


class Training(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(super().forward(x), 0.5, self.training)


def one_in_training(layers: list[Any]) -> None:
    layers[2].train()


def test_dropout_and_the_training_flag() -> None:
    def make() -> Any:
        model = stack(cls=Training)()
        one_in_training(model.layers)
        return model

    agree(make, X, played=DEPTH - 2, watched=Training)
    agree(lambda: stack(cls=Training)().train(), X, played=DEPTH - 1, watched=Training)


# ---------------------------------------------------------------------- aliases


def test_tied_parameters_between_layers() -> None:
    def tie(layers: list[Any]) -> None:
        layers[2].first.weight = layers[1].first.weight
        layers[3].second = layers[0].second

    agree(stack(tie), X, played=1)


def test_a_tied_parameter_inside_a_layer() -> None:
    def tie(layers: list[Any]) -> None:
        layers[2].second.weight = layers[2].first.weight

    agree(stack(tie), X, played=DEPTH - 2)


def test_the_same_tie_in_every_layer() -> None:
    def tie(layers: list[Any]) -> None:
        for layer in layers:
            layer.second.weight = layer.first.weight

    agree(stack(tie), X, played=DEPTH - 1)


def test_a_module_shared_by_every_layer() -> None:
    def share(layers: list[Any]) -> None:
        for layer in layers:
            layer.norm = layers[0].norm

    agree(stack(share), X, played=None)


def test_a_layer_that_appears_twice() -> None:
    def twice(layers: list[Any]) -> None:
        layers[2] = layers[0]
        layers[3] = layers[1]

    agree(stack(twice), X, played=None)


def test_one_layer_called_again_and_again() -> None:
    class Repeats(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * 1
            for _ in range(3):
                x = self.layers[0](x)
            return x

    agree(lambda: Repeats([Layer()]).eval(), X, played=2)


def test_views_of_one_storage() -> None:
    def share(layers: list[Any]) -> None:
        memory = torch.randn(2, 8, 8)
        for layer, part in zip(layers[1:3], memory, strict=True):
            layer.first.weight = nn.Parameter(part)

    agree(stack(share), X, played=None)


class ReadsOther(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        x = x + self.layers[2].first.weight.sum() + self.layers[3].norm(x)
        return self.again(x) + self.layers[1].scale

    def again(self, x: torch.Tensor) -> torch.Tensor:
        named = dict(self.named_modules())
        return named["layers.2.first"](x) + self.kept["weight"].sum()


def test_what_only_a_replay_has_seen_is_read_later() -> None:
    def make() -> Any:
        model = ReadsOther([Layer() for _ in range(DEPTH)]).eval()
        model.kept = model.layers[3].second._parameters
        return model

    agree(make, X, played=DEPTH - 1)


# ---------------------------------------------------------------------- effects and state


class Counts(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        COUNTED["calls"] += 1
        return super().forward(x) + COUNTED["calls"]


class Prints(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("layer")
        return super().forward(x)


class OwnCount(Layer):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x) * self.calls


class Keyed(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + SEEN.get(self, len(SEEN))


class Remembers(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        SEEN[self] = len(SEEN)
        return super().forward(x) + len(SEEN)


class Referred(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + (1 if weakref.ref(self)() is self else 2)


class Numbered(Layer):
    made = 0

    def __init__(self) -> None:
        super().__init__()
        self.idx = Numbered.made = Numbered.made + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.idx


class Stored(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        return super().forward(x) * self.seen


class Generates(Layer):
    def parts(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        yield self.first(x)
        yield self.second(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(sum(self.parts(x), x))


class Raises(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            self.refuse(x)
        except ValueError as error:
            return super().forward(x) * len(error.args)
        return x

    def refuse(self, x: torch.Tensor) -> None:
        raise ValueError("never", self.scale)


class Breaks(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stator.graph_break()
        return super().forward(x)


class Toggles(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale = 5.0
        y = super().forward(x)
        del self.scale
        return y


class Normed(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)


class Identified(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + (id(self) % 2 == 7)


@pytest.mark.parametrize(("cls", "played"), [
    (Counts, 0), (Prints, 0), (OwnCount, 0), (Keyed, None), (Remembers, 0), (Referred, None), (Numbered, 0), (Stored, 0),
    (Generates, DEPTH - 1), (Raises, None), (Breaks, 0), (Toggles, None), (Normed, 0), (Identified, 0)])
def test_layers_with_a_life_of_their_own(cls: Any, played: int | None) -> None:
    def make() -> Any:
        Numbered.made = 0
        model = stack(cls=cls)()
        if cls is Keyed:
            SEEN[model.layers[2]] = 9
        return model

    agree(make, X, played=played, watched=cls)


def test_batch_norm_in_training_writes_its_buffers() -> None:
    agree(lambda: stack(cls=Normed)().train(), X, played=0, watched=Normed)


def test_a_class_attribute_that_changes_between_layers() -> None:
    class Changes(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.layers[0](x)
            Layer.scale = 3.0
            x = self.layers[1](x)
            Layer.scale = 2.0
            return self.layers[2](x)

    agree(lambda: Changes([Layer() for _ in range(DEPTH)]).eval(), X, played=None)
    assert Layer.scale == 2.0


def test_what_a_layer_reads_changes_between_layers() -> None:
    class Follows(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.config["factor"][0]

    class Changes(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * 1
            for number, layer in enumerate(self.layers):
                self.config["factor"][0] = number // 2
                x = layer(x)
            self.config["factor"][0] = 0
            return x

    def make() -> Any:
        layers = [Follows() for _ in range(DEPTH)]
        config = {"factor": [0]}
        for layer in layers:
            layer.config = config  # type: ignore[assignment]
        model = Changes(layers).eval()
        model.config = config  # type: ignore[assignment]
        return model

    agree(make, X, played=2, watched=Follows)


def test_a_list_of_the_trace_that_layers_fill() -> None:
    class Fills(Layer):
        def forward(self, x: torch.Tensor, out: list[Any]) -> torch.Tensor:
            out.append(x)
            return super().forward(x) + len(out)

    class Passes(Stack):
        def forward(self, x: torch.Tensor) -> Any:
            out: list[Any] = []
            for layer in self.layers:
                x = layer(x, out)
            return x, out

    agree(lambda: Passes([Fills() for _ in range(DEPTH)]).eval(), X, played=0, watched=Fills)


def test_arguments_and_results() -> None:
    class Pair(Layer):
        def forward(self, x: torch.Tensor, mask: Any = None, *, flag: bool = False) -> Any:
            y = super().forward(x)
            return (y if mask is None else y * mask[0], x, None, flag)

    class Passes(Stack):
        def forward(self, x: torch.Tensor) -> Any:
            mask = (x.sum(), x)
            results = []
            for number, layer in enumerate(self.layers):
                x, before, nothing, flag = layer(x, mask if number else None, flag=number > 2)
                results.append((x, before, nothing, flag))
            return results

    agree(lambda: Passes([Pair() for _ in range(6)]).eval(), X, played=3, watched=Pair)


def test_other_shapes_and_dtypes_are_traced() -> None:
    class Grows(Stack):
        def forward(self, x: torch.Tensor) -> Any:
            x = self.layers[1](self.layers[0](x * 1))
            x = self.layers[3](self.layers[2](torch.cat([x, x])))
            return x

    agree(lambda: Grows([Layer() for _ in range(DEPTH)]).eval(), X, played=2)


def test_grad_mode_inside_the_program() -> None:
    class Switches(Stack):
        def forward(self, x: torch.Tensor) -> Any:
            x = self.layers[0](x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                x = self.layers[1](x)
                x = self.layers[2](x)
            return self.layers[3](x.float())

    agree(lambda: Switches([Layer() for _ in range(DEPTH)]).eval(), X, played=None)


def test_training_is_traced_layer_by_layer() -> None:
    agree(stack(), X, played=0, grad=True)


def test_dynamic_sizes_are_traced_layer_by_layer() -> None:
    model = stack()()
    compiled = stator.compile(model, backend="eager", dynamic=True)
    with torch.no_grad(), counting(Layer) as found:
        for size in (2, 5):
            x = torch.randn(size, 8)
            torch.testing.assert_close(compiled(x), model(x))
    assert not found


# ---------------------------------------------------------------------- the guards of a replayed layer


def other_hook(model: Any) -> None:
    model.layers[3].register_forward_hook(lambda module, args, out: out * 2)


def other_norm(model: Any) -> None:
    model.layers[3].norm.eps = 0.25


def other_scale(model: Any) -> None:
    model.layers[3].scale = 7.0


def other_parameter(model: Any) -> None:
    model.layers[3].first.weight = nn.Parameter(torch.ones(8, 8))


def other_values(model: Any) -> None:
    with torch.no_grad():
        model.layers[3].first.weight.fill_(0.5)


def other_child(model: Any) -> None:
    model.layers[3].second = nn.Sequential(nn.Linear(8, 8), nn.Tanh())


def other_forward(model: Any) -> None:
    model.layers[3].forward = lambda x: x - 1


def other_class(model: Any) -> None:
    model.layers[3].__class__ = Numbered
    model.layers[3].idx = 4


def tied(model: Any) -> None:
    model.layers[3].first.weight = model.layers[1].first.weight


def in_training(model: Any) -> None:
    model.layers[3].norm = nn.BatchNorm1d(8)


def replaced_layer(model: Any) -> None:
    model.layers[3] = Layer()


def data_swapped(model: Any) -> None:
    model.layers[3].second.weight.data = torch.eye(8)


@pytest.mark.parametrize("change", [other_hook, other_norm, other_scale, other_parameter, other_values, other_child,
                                    other_forward, other_class, tied, in_training, replaced_layer, data_swapped])
def test_a_change_in_a_replayed_layer_is_seen(change: Callable[[Any], None]) -> None:
    compiled, model = agree(stack(), X, played=DEPTH - 1)
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), model(X))
        change(model)
        torch.testing.assert_close(compiled(X), model(X))
        torch.testing.assert_close(compiled(X), model(X))


class Router(nn.Module):
    """Its third result is a part of `topk` that nothing inside uses: its node is made after the segment."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 8))

    def forward(self, x: Any) -> Any:
        logits = nn.functional.linear(x, self.weight).float()
        best, index = logits.topk(2, dim=-1)
        return logits, torch.softmax(best, dim=-1).type_as(x), index


class Routed(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale, self.router = scale, Router()

    def forward(self, x: Any) -> Any:
        _, weights, index = self.router(x)
        return x + x.gather(-1, index).sum(-1, keepdim=True) * weights.sum(-1, keepdim=True) * self.scale


def test_a_part_of_a_result_that_is_used_only_after_the_layer() -> None:
    agree(lambda: nn.Sequential(Routed(0.5), Routed(2.0), Routed(3.0)).eval(), X, played=1, watched=Router)
