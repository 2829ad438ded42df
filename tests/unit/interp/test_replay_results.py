"""Repeated structure: what layers return, what they share and how they are told apart."""

from __future__ import annotations

import types
import weakref
from decimal import Decimal
from typing import Any

import torch

from stator import events
from tests.replayed_layers import DEPTH, Layer, Stack, X, agree, stack


class Lists(Layer):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return [y, y + 1]


class Named(Layer):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return {"y": y, "z": y * 2}


class Counted(Layer):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return y, y.shape[0] * 1000, [y]


class Keeps(Stack):
    def forward(self, x: Any) -> Any:
        kept = []
        x = x * 1
        for layer in self.layers:
            out = layer(x)
            kept.append(out)
            x = out["y"] if isinstance(out, dict) else out[0]
        return kept, [one is other for one in kept for other in kept]


def test_results_that_are_made_anew_in_each_layer() -> None:
    for cls in (Lists, Named, Counted):
        agree(lambda cls=cls: Keeps([cls() for _ in range(DEPTH)]).eval(), X, played=None, watched=cls)


def test_a_tuple_that_a_layer_hands_back_is_that_one() -> None:
    class Hands(Layer):
        def forward(self, x: Any, pair: Any, *, other: Any = None) -> Any:
            return super().forward(x) + pair[0].sum(), pair, other

    class Asks(Stack):
        def forward(self, x: Any) -> Any:
            x = x * 1
            pair, other, seen = (x, x + 1), (x, (x * 2, None)), []
            for layer in self.layers:
                x, got, more = layer(x, pair, other=other[1])
                seen.append((got is pair, got[0] is pair[0], more is other[1]))
            return x, seen

    agree(lambda: Asks([Hands() for _ in range(DEPTH)]).eval(), X, played=None, watched=Hands)


def test_numbers_that_the_program_has_set_between_layers() -> None:
    class Scaled(Layer):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * FACTOR[0] + FACTORS.value

    class Sets(Stack):
        def forward(self, x: Any) -> Any:
            x = x * 1
            for number, layer in enumerate(self.layers):
                FACTOR[0] = number
                FACTORS.value = number * 2
                x = layer(x)
            return x

    agree(lambda: Sets([Scaled() for _ in range(DEPTH)]).eval(), X, played=None, watched=Scaled)


class Factors:
    value = 0


FACTOR, FACTORS = [0], Factors()


def test_a_miss_names_the_fact_of_a_replayed_layer() -> None:
    compiled, model = agree(stack(), X, played=DEPTH - 1)
    with torch.no_grad(), events.record() as log:
        model.layers[3].scale = 7.0
        torch.testing.assert_close(compiled(X), model(X))
    told = [str(event) for event in log if "scale" in str(event)]
    assert any("layers[3]" in text or "layers.3" in text for text in told), told


def test_layers_that_share_a_parameter_with_each_other() -> None:
    class Shares(Layer):
        def forward(self, x: Any) -> Any:
            return super().forward(x) + (1 if self.first.weight is self.second.weight else 2)

    def make() -> Any:
        layers = [Shares() for _ in range(DEPTH)]
        layers[2].second.weight = layers[2].first.weight
        layers[3].second.weight = layers[0].first.weight
        return Stack(layers).eval()

    agree(make, X, played=None, watched=Shares)


class Held:
    def __init__(self, factor: float) -> None:
        self.factor = factor


class Through(Layer):
    """Facts behind what a reader answers: a mapping behind its proxy, what a reference refers to, a number's parts."""

    def __init__(self) -> None:
        super().__init__()
        self.behind, self.held, self.number = {"factor": 2.0}, Held(3.0), Decimal("1.5")
        self.proxy, self.reference = types.MappingProxyType(self.behind), weakref.ref(self.held)

    def forward(self, x: Any) -> Any:
        return super().forward(x) * self.proxy["factor"] + self.reference().factor + int(self.number)


def test_facts_behind_what_readers_answer() -> None:
    def make() -> Any:
        layers = [Through() for _ in range(DEPTH)]
        layers[2].behind["factor"] = 5.0
        return Stack(layers).eval()

    agree(make, X, played=None, watched=Through)
    compiled, model = agree(stack(cls=Through), X, played=None, watched=Through)
    with torch.no_grad():
        for layer, change in ((3, lambda each: each.behind.update(factor=7.0)),
                              (2, lambda each: setattr(each.held, "factor", 11.0)),
                              (1, lambda each: setattr(each, "number", Decimal("4.5"))),
                              (0, lambda each: each.behind.update(factor=13.0))):
            change(model.layers[layer])
            for _ in range(2):
                torch.testing.assert_close(compiled(X), model(X))


def test_layers_that_are_called_again_and_compare_their_parts() -> None:
    class Compares(Layer):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            return y if self.first is not self.second else x

    class Twice(Stack):
        def forward(self, x: Any) -> Any:
            return super().forward(super().forward(x))

    agree(lambda: Twice([Compares() for _ in range(DEPTH)]).eval(), X, played=2 * DEPTH - 1, watched=Compares)
