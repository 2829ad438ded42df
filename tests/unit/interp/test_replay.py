"""Repeated structure: a replayed layer is what a traced layer would have been, and a layer that differs is traced.

Each program is captured twice, with replay and without: graphs node for node, guards one by one, results against
eager. `played` says how many modules of the watched class were replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events
from tests.replayed_layers import DEPTH, Layer, Stack, X, agree, counting, stack


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


@stator.allow_in_graph
def scaled_2(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Numbered(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(scaled_2(scaled_2(x)))


def test_operations_whose_names_end_in_a_number() -> None:
    """FX takes that for a number of its own, and counts on from it."""
    agree(stack(cls=Numbered), X, played=DEPTH - 1, watched=Numbered)


class Joins(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([super().forward(x), x * 2], 1)[:, 4:12]


def test_tensors_in_lists() -> None:
    agree(stack(cls=Joins), X, played=DEPTH - 2, watched=Joins)


class AsItLies(Layer):
    shared: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, weight = super().forward(x), self.shared
        return y @ weight @ weight.t() if weight.shape[0] == 8 else y + x @ weight.t() @ weight * 2


class Turning(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x * 1)
            self.layers[0].shared.t_()
        return x


def test_a_tensor_that_is_turned_between_layers() -> None:
    def make() -> Any:
        model, shared = Turning([AsItLies() for _ in range(DEPTH)]).eval(), torch.randn(8, 4)
        for layer in model.layers:
            layer.shared = shared
        return model

    agree(make, X, played=None, watched=AsItLies)


class Apart(Stack):
    """Each layer is called from a line of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers[0](x * 1)
        x = self.layers[1](x)
        return self.layers[2](x)


def test_nodes_of_a_replayed_layer_know_the_lines_they_were_called_from() -> None:
    told = []
    for replay in (False, True):
        with events.record() as log, counting(Layer) as found, torch.no_grad():
            stator.compile(Apart([Layer() for _ in range(3)]), backend="eager", options={"replay": replay})(X)
        (made,) = [event for event in log if isinstance(event, events.CaptureFinished)]
        told.append([node.meta.get("stack_trace") for node in made.graph.graph.nodes if node.op.startswith("call")])
        assert len(found) == 2 * replay
    assert told[0] == told[1]
    assert len(set(told[0])) > 6
