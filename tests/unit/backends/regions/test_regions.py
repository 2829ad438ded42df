"""Graphs that are compiled in pieces compute what eager does and what the whole graph does, bit by bit."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import stator
from stator import events
from stator.backends.regions import compilation, direct_calls, extraction
from tests.unit.backends.regions.three_sides import on_three_sides, require_equal

LAYERS = 6


class Block(nn.Module):
    """Attention and a feed-forward part, each with a norm and a residual."""

    def __init__(self, width=16, dropout=0.0):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = dropout

    def forward(self, x):
        q, k, v = [each.unflatten(-1, (2, -1)).transpose(1, 2) for each in self.qkv(self.norm1(x)).chunk(3, -1)]
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + F.dropout(self.out(y), self.dropout, self.training)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Stack(nn.Module):
    def __init__(self, blocks, width=16):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.blocks = nn.ModuleList(blocks)
        self.last = nn.Linear(width, 3)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def inputs(*shape, grad=False):
    return torch.randn(*(shape or (2, 5, 16)), requires_grad=grad)


def build_stack(make=Block, layers=LAYERS, grad=False, prepare=None):
    model = Stack([make() for _ in range(layers)])
    if prepare is not None:
        prepare(model)
    return model, [(inputs(grad=grad),)]


@pytest.mark.parametrize("grad", [False, True])
def test_training(grad):
    sides = require_equal(on_three_sides(functools.partial(build_stack, grad=grad)))
    assert sides.uses == [1, LAYERS, 1]
    assert len(sides.of(events.BackendCompiled)) == 3


def test_inference():
    sides = require_equal(on_three_sides(build_stack, around=torch.no_grad))
    assert sides.uses == [1, LAYERS, 1]


def test_inference_mode():
    require_equal(on_three_sides(build_stack, around=torch.inference_mode))


def test_an_input_without_a_gradient_makes_the_first_layer_another_piece():
    class Plain(Stack):
        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    sides = require_equal(on_three_sides(lambda: (Plain([Block() for _ in range(LAYERS)]), [(inputs(),)])))
    assert LAYERS - 1 in sides.uses


def test_dropout_draws_the_same_numbers():
    sides = require_equal(on_three_sides(functools.partial(build_stack, functools.partial(Block, dropout=0.3))))
    assert LAYERS in sides.uses


def test_functional_code_without_modules():
    def run(x, weights, biases):
        for weight, bias in zip(weights, biases, strict=True):
            h = torch.tanh(F.linear(x, weight, bias))
            h = h - h.mean(-1, keepdim=True)
            h = h * torch.rsqrt(h.var(-1, keepdim=True) + 1e-3)
            x = x + h.sin() * 0.5 + h.cos().exp()
        return x.sum(-1)

    def build():
        weights = [torch.randn(8, 8, requires_grad=True) for _ in range(12)]
        return run, [(torch.randn(3, 8, requires_grad=True), weights, [torch.randn(8) for _ in range(12)])]

    assert max(require_equal(on_three_sides(build)).uses) >= 10  # the last sum hands an expanded gradient back
    assert max(require_equal(on_three_sides(build, around=torch.no_grad)).uses) >= 11


def test_layers_that_share_their_weights():
    def build():
        block = Block()
        return Stack([block] * LAYERS), [(inputs(),)]

    assert LAYERS in require_equal(on_three_sides(build)).uses


def test_tied_embedding():
    class Tied(Stack):
        def forward(self, x):
            x = F.linear(x, self.first.weight)
            for block in self.blocks:
                x = block(x)
            return F.linear(x, self.first.weight)

    assert LAYERS in require_equal(on_three_sides(lambda: (Tied([Block() for _ in range(LAYERS)]), [(inputs(),)]))).uses


def test_frozen_layers_are_pieces_of_their_own():
    def freeze(model):
        for block in model.blocks[1:3]:
            block.requires_grad_(False)

    sides = require_equal(on_three_sides(functools.partial(build_stack, layers=10, prepare=freeze)))
    assert sum(sides.uses) > 3


def test_only_low_rank_weights_learn():
    class Adapted(Block):
        def __init__(self):
            super().__init__()
            self.requires_grad_(False)
            self.a, self.b = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)

        def forward(self, x):
            return super().forward(x) + self.b(self.a(x))

    assert LAYERS in require_equal(on_three_sides(functools.partial(build_stack, Adapted))).uses


class Decoder(nn.Module):
    """Cross attention: every layer reads `memory` twice."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = [nn.Linear(16, 16) for _ in range(4)]
        self.norm = nn.LayerNorm(16)

    def forward(self, x, memory):
        scores = self.q(self.norm(x)) @ self.k(memory).transpose(1, 2)
        return x + self.o(F.gelu(torch.softmax(scores, -1) @ self.v(memory)))


class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(16, 16)
        self.layers = nn.ModuleList(Decoder() for _ in range(8))

    def forward(self, x, y):
        memory = self.encoder(y)
        for layer in self.layers:
            x = layer(x, memory)
        return x, memory


def build_cross_attention():
    return CrossAttention(), [(inputs(grad=True), inputs(2, 7, 16, grad=True))]


def test_a_value_that_every_layer_uses_twice_has_its_gradients_added_in_order():
    assert 8 in require_equal(on_three_sides(build_cross_attention)).uses


def test_the_order_of_gradients_matters(monkeypatch):
    """Without one input for each use the sums differ, and the comparison shows it."""
    monkeypatch.setattr(extraction.Probes, "gradients", lambda *args: 0)
    monkeypatch.setattr(extraction, "wants_grad", lambda value: False)
    with pytest.raises(AssertionError, match="pieces differ"):
        require_equal(on_three_sides(build_cross_attention))


def test_a_fault_in_the_stitching_is_found(monkeypatch):
    def swapped(flow, steps):
        """Two weights of one layout change places in the call of one piece."""
        piece = next(step for step in steps if len(step.inputs) > 4 and step.start)
        layouts = {}
        for number, node in enumerate(piece.inputs):
            other = layouts.setdefault(flow.contents.of(flow.value(node), None), number)
            if other != number:
                piece.inputs[number], piece.inputs[other] = piece.inputs[other], piece.inputs[number]
                break
        return direct_calls.join_directly(flow, steps)

    monkeypatch.setattr(compilation, "join_directly", swapped)
    with pytest.raises(AssertionError, match="pieces differ"):
        require_equal(on_three_sides(build_stack))


class Counting(Block):
    """A buffer that each call writes to."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, x):
        x = super().forward(x)
        with torch.no_grad():
            self.seen.add_(x.mean((0, 1)))
        return x


def test_buffers_that_are_written_to():
    assert LAYERS in require_equal(on_three_sides(functools.partial(build_stack, Counting))).uses


def test_a_written_buffer_that_several_layers_read_is_not_cut():
    class Scaled(Stack):
        def __init__(self):
            super().__init__([Block() for _ in range(LAYERS)])
            self.register_buffer("scale", torch.ones(16))

        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = block(x * self.scale.exp())
            self.scale.add_(1)
            return x

    sides = require_equal(on_three_sides(lambda: (Scaled(), [(inputs(),)])))
    assert not sides.uses and "written" in sides.whole_because[0]


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm1, self.norm2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(x + y * torch.sigmoid(y))


def test_running_statistics():
    def build():
        return nn.Sequential(nn.Conv2d(3, 4, 1), *[Normed() for _ in range(8)]), [(inputs(2, 3, 6, 6),)]

    assert 8 in require_equal(on_three_sides(build)).uses


def test_in_place_writes_inside_a_layer():
    class InPlace(Block):
        def forward(self, x):
            y = super().forward(x)
            z = y * 2
            z[0].add_(1)
            z.view(-1)[3:].mul_(0.5)
            return F.relu(z + x, inplace=True)

    assert LAYERS in require_equal(on_three_sides(functools.partial(build_stack, InPlace))).uses


def test_a_value_that_each_layer_writes_to_is_not_cut():
    def run(x, weights):
        total = torch.zeros_like(x)
        for weight in weights:
            x = torch.tanh(x @ weight)
            x = x * torch.sigmoid(x) + x.exp() - x.sin()
            x = x - x.mean(-1, keepdim=True)
            total.add_(x)
            x = x.cos() + x.abs()
        return x, total

    def build():
        return run, [(torch.randn(3, 8), [torch.randn(8, 8) for _ in range(8)])]

    sides = require_equal(on_three_sides(build))
    assert not sides.uses and "written" in sides.whole_because[0]


def test_views_that_cross_a_border():
    def run(x, weights):
        table = x.cumsum(0)[:, None].expand(-1, 4, -1)
        for weight in weights:
            x = torch.tanh(x @ weight).t().contiguous().t()
            x = x * torch.sigmoid(x) + table.sum(1) + table[:, 1]
            x = (x - x.mean(-1, keepdim=True)).cos().transpose(0, 1).transpose(0, 1)
        return x, table

    def build():
        return run, [(torch.randn(8, 8, requires_grad=True), [torch.randn(8, 8, requires_grad=True) for _ in range(8)])]

    assert "laid out" in require_equal(on_three_sides(build), to_eager=False).whole_because[0]
    assert max(require_equal(on_three_sides(build, around=torch.no_grad)).uses) >= 7


def test_every_hidden_state_is_returned():
    class Hidden(Stack):
        def forward(self, x):
            x = self.first(x)
            states = [x]
            for block in self.blocks:
                x = block(x)
                states.append(x)
            return self.last(x), states, states[2].transpose(0, 1)

    assert LAYERS in require_equal(
        on_three_sides(lambda: (Hidden([Block() for _ in range(LAYERS)]), [(inputs(),)]))).uses


@pytest.mark.parametrize("inside", [False, True])
def test_autocast(inside):
    class Cast(Stack):
        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16, enabled=inside):
                return super().forward(x).float()

    around = None if inside else lambda: torch.autocast("cpu", torch.bfloat16)
    sides = require_equal(on_three_sides(lambda: (Cast([Block() for _ in range(LAYERS)]), [(inputs(),)]),
                                         around=around), to_eager=False)
    assert LAYERS in sides.uses


def test_a_shared_weight_under_autocast_is_not_cut():
    def build():
        block = Block()
        return Stack([block] * LAYERS), [(inputs(),)]

    sides = require_equal(on_three_sides(build, around=lambda: torch.autocast("cpu", torch.bfloat16)), to_eager=False)
    assert not sides.uses and "cast" in sides.whole_because[0]


@pytest.mark.parametrize("casts", [1, 2])
def test_a_tied_embedding_under_autocast(casts):
    """A weight that is cast in one piece may be used in others; one that is cast in two keeps the graph whole."""
    class Tied(Stack):
        def forward(self, ids):
            x = F.embedding(ids, self.first.weight)
            if casts == 2:
                x = self.first(x)
            for block in self.blocks:
                x = block(x)
            return F.linear(x, self.first.weight)

    sides = require_equal(on_three_sides(
        lambda: (Tied([Block() for _ in range(LAYERS)]), [(torch.randint(0, 16, (2, 5)),)]),
        around=lambda: torch.autocast("cpu", torch.bfloat16)), to_eager=False)
    if casts == 1:
        assert max(sides.uses) >= LAYERS - 1
    else:
        assert not sides.uses and "cast in several" in sides.whole_because[0]


def test_parts_without_gradients():
    class Partly(Block):
        def forward(self, x):
            with torch.no_grad():
                scale = x.abs().amax(-1, keepdim=True) + 1
            return super().forward(x / scale) * scale

    assert LAYERS in require_equal(on_three_sides(functools.partial(build_stack, Partly))).uses


def test_dynamic_sizes():
    def build():
        model = Stack([Block() for _ in range(LAYERS)])
        return model, [(inputs(2, length, 16),) for length in (5, 7, 9)]

    sides = require_equal(on_three_sides(build, dynamic=True))
    assert LAYERS in sides.uses


def test_sizes_that_are_sums_and_products():
    class Flat(Stack):
        def forward(self, x, y):
            x = torch.cat([x, y], 1).flatten(0, 1)[None]
            for block in self.blocks:
                x = block(x)
            return x.view(y.shape[0], -1, 16)

    def build():
        model = Flat([Block() for _ in range(LAYERS)])
        return model, [(inputs(2, one, 16, grad=True), inputs(2, other, 16)) for one, other in ((3, 4), (5, 7), (6, 9))]

    assert LAYERS - 1 in require_equal(on_three_sides(build, dynamic=True)).uses


def test_blocks_of_two_kinds():
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.gate = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x):
            return x + torch.sigmoid(self.gate(x)) * F.silu(self.inner(x)).sin().cos()

    def build():
        return Stack([kind() for _ in range(5) for kind in (Block, Other)]), [(inputs(),)]

    assert 5 in require_equal(on_three_sides(build)).uses


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_checkpointed_layers(dropout):
    class Checkpointed(Stack):
        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return self.last(x)

    require_equal(on_three_sides(
        lambda: (Checkpointed([Block(dropout=dropout) for _ in range(LAYERS)]), [(inputs(),)])))


def test_gradients_of_gradients():
    class Smooth(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down, self.norm = nn.Linear(16, 32), nn.Linear(32, 16), nn.LayerNorm(16)

        def forward(self, x):
            y = self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))
            return x + y * torch.sigmoid(y) + torch.tanh(x).sin() * 0.1 - y.cos()

    model, calls = build_stack(Smooth, layers=8, grad=True)
    x = calls[0][0]

    def penalty(run):
        gradient, = torch.autograd.grad(run(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), [x, *model.parameters()], allow_unused=True)

    expected = penalty(model)
    with events.record() as log:
        found = penalty(stator.compile(model, backend="aot_eager"))
    assert any(isinstance(event, events.GraphCut) for event in log)
    for one, other in zip(expected, found, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, atol=1e-5)


def test_regions_can_be_turned_off():
    model, calls = build_stack()
    with events.record() as log:
        stator.compile(model, backend="aot_eager", options={"regions": "off"})(*calls[0])
    assert not [event for event in log if isinstance(event, (events.GraphCut, events.GraphKeptWhole))]


def test_small_graphs_are_compiled_whole_in_silence():
    with events.record() as log:
        stator.compile(lambda x: x.sin() + 1, backend="aot_eager")(torch.randn(3))
    assert not [event for event in log if isinstance(event, (events.GraphCut, events.GraphKeptWhole))]
