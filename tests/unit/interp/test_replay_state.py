"""Repeated structure beside effects and state: what a layer changes, prints, remembers or counts is not replayed."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events
from tests.replayed_layers import COUNTED, DEPTH, SEEN, Layer, Stack, X, agree, counting, stack


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
    (Generates, DEPTH - 1), (Raises, None), (Breaks, 0), (Toggles, None), (Normed, DEPTH - 1), (Identified, 0)])
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


class Reads(Layer):
    table: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.table.shape[0] + self.table.sum(0)[1]


def test_a_tensor_that_changes_its_layout_between_layers() -> None:
    class Turns(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x * 1)
                self.layers[0].table.t_()
            return x

    def make() -> Any:
        layers, table = [Reads() for _ in range(DEPTH)], torch.arange(6.0).reshape(2, 3)
        for layer in layers:
            layer.table = table
        return Turns(layers).eval()

    agree(make, X, played=0, watched=Reads)


def test_a_tensor_that_is_written_to_between_layers() -> None:
    class Doubles(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x * 1)
                x.mul_(2)
            return x

    agree(lambda: Doubles([Layer() for _ in range(DEPTH)]).eval(), X, played=DEPTH - 1)


def test_a_number_that_has_changed_in_one_layer_is_left_open_in_it() -> None:
    """Also where it is, at the moment, what it is in the layers before."""
    model = stack(lambda layers: [setattr(layer, "scale", 2.0) for layer in layers])()
    compiled, captures = stator.compile(model, backend="eager", options={"strict": True}), []
    for scale in (1.0, 2.0, 3.0, 4.0):
        model.layers[2].scale = scale
        with torch.no_grad(), events.record() as log:
            torch.testing.assert_close(compiled(X), model(X))
        captures.append(sum(isinstance(event, events.CaptureFinished) for event in log))
    assert captures == [1, 1, 0, 0], captures


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


class Totals(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(2, 8)
        for layer in self.layers:
            x = layer(x)
            total.add_(x)
        return total


def test_writes_between_layers_change_no_layout() -> None:
    agree(lambda: Totals([Layer() for _ in range(DEPTH)]).eval(), X, played=DEPTH - 2)


class Flattens(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x), x.reshape(16)


class WritesToViews(Stack):
    def forward(self, *inputs: torch.Tensor) -> Any:
        made = [layer(x.view(2, 8)) for layer, x in zip(self.layers, inputs, strict=True)]
        for _, flat in made:
            flat.add_(1).mul_(2).sub_(1)
        return [y for y, _ in made]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_writes_to_views_that_a_replay_gave_are_counted(backend: str) -> None:
    model = WritesToViews([Flattens() for _ in range(DEPTH)]).eval()
    seen = []
    for program in (model, stator.compile(model, backend=backend, fullgraph=True)):
        inputs = [torch.ones(2, 8) for _ in range(DEPTH)]
        with torch.no_grad(), counting(Flattens) as found:
            program(*inputs)
        seen.append(([x._version for x in inputs], [x.tolist() for x in inputs]))
    assert seen[0] == seen[1] and len(found) == DEPTH - 1


class Activated(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.act = functools.partial(nn.functional.gelu, approximate="tanh")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(super().forward(x))


def test_a_partial_of_a_replayed_layer_gets_no_dict() -> None:
    model = stack(cls=Activated)()
    before = [[type(part) for part in gc.get_referents(layer.act)] for layer in model.layers]
    with events.record() as log, torch.no_grad(), counting(Activated) as found:
        compiled = stator.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(X), model(X))
    assert len(found) == DEPTH - 1 and len([each for each in log if isinstance(each, events.CaptureStarted)]) == 1
    assert before == [[type(part) for part in gc.get_referents(layer.act)] for layer in model.layers]
    model.layers[2].act.keywords["approximate"] = "none"
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), model(X))
