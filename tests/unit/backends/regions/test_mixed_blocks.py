"""Models of several kinds of blocks, marked tensors and tensor subclasses: cut where that is right, else whole with a reason."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import stator
from stator import events
from stator.backends.regions import compilation
from stator.shapes.tensor_marks import ADDRESS_MARK
from tests.unit.backends.regions.test_regions import LAYERS, Block, Decoder, Stack, inputs
from tests.unit.backends.regions.three_sides import on_three_sides, require_equal


class Experts(nn.Module):
    """Four experts, mixed by a router."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(16, 4)
        self.up, self.down = nn.Parameter(torch.randn(4, 16, 8) * 0.1), nn.Parameter(torch.randn(4, 8, 16) * 0.1)

    def forward(self, x):
        weights, chosen = torch.softmax(self.router(x), -1).topk(2, -1)
        mixed = torch.zeros_like(self.router(x)).scatter(-1, chosen, weights)
        made = torch.einsum("bsed,edf->bsef", F.silu(torch.einsum("bsd,edf->bsef", x, self.up)), self.down)
        return x + (made * mixed.unsqueeze(-1)).sum(-2)


def test_experts_between_other_blocks():
    def build():
        return Stack([kind() for _ in range(5) for kind in (Block, Experts)]), [(inputs(),)]

    assert 5 in require_equal(on_three_sides(build)).uses


@pytest.mark.parametrize("around", [None, torch.no_grad])
def test_encoder_and_decoder(around):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.ModuleList([Block() for _ in range(LAYERS)])
            self.decoder = nn.ModuleList([Decoder() for _ in range(8)])

        def forward(self, source, x):
            for block in self.encoder:
                source = block(source)
            for block in self.decoder:
                x = block(x, source)
            return x

    sides = require_equal(on_three_sides(lambda: (Both(), [(inputs(), inputs())]), around=around))
    assert len([uses for uses in sides.uses if uses >= LAYERS - 2]) == 2, (sides.uses, sides.whole_because)


def test_a_network_of_many_widths_is_compiled_whole():
    class Skips(nn.Module):
        def __init__(self, widths=(4, 8, 16)):
            super().__init__()
            self.down = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in zip((3, *widths), widths, strict=False)])
            self.up = nn.ModuleList([nn.Conv2d(2 * a, max(a // 2, 3), 3, padding=1) for a in reversed(widths)])
            self.norms = nn.ModuleList([nn.GroupNorm(2, width) for width in widths])

        def forward(self, x):
            kept = []
            for down, norm in zip(self.down, self.norms, strict=True):
                x = F.silu(norm(down(x))) * torch.sigmoid(x.mean()) + x.sin().cos().mean().tanh().exp().sqrt()
                kept.append(x)
            for up in self.up:
                x = F.silu(up(torch.cat([x, kept.pop()], 1))) * torch.sigmoid(x.std()) + x.cos().sin().mean().abs()
            return x

    sides = require_equal(on_three_sides(lambda: (Skips(), [(torch.randn(1, 3, 8, 8),)])), to_eager=False)
    assert not sides.uses and sides.whole_because == ["nothing repeats often enough"]


def test_a_tensor_subclass_is_compiled_whole():
    torch.manual_seed(0)
    model = Stack([Block() for _ in range(LAYERS)])
    given = [torch.randn(2, 5, 16) for _ in range(2)]
    with torch.no_grad(), events.record() as log:
        expected = model(TwoTensor(*given))
        found = stator.compile(model, backend="aot_eager")(TwoTensor(*given))
    assert type(found) is TwoTensor and torch.equal(found.a, expected.a) and torch.equal(found.b, expected.b)
    assert "an input is a tensor subclass" in [event.why for event in log if isinstance(event, events.GraphKeptWhole)]


def test_marked_addresses_reach_the_pieces(monkeypatch):
    made = []

    def kept(*args):
        made.append(module_of(*args))
        return made[-1]

    module_of = compilation.module_of
    monkeypatch.setattr(compilation, "module_of", kept)
    model, table = Stack([Block() for _ in range(LAYERS)]), torch.randn(5, 16)
    stator.mark_static_address(table)

    def run(x, table):
        return model(x + table) * table.sum()

    with torch.no_grad():
        compiled, x = stator.compile(run, backend="aot_eager"), inputs()
        assert torch.equal(compiled(x, table), run(x, table))
    marks = [{node.name: ADDRESS_MARK in node.meta.get("tensor_dict", ()) for node in piece.graph.find_nodes(op="placeholder")}
             for piece, _ in made]
    assert len(marks) >= 3 and all(any(each.values()) for each in marks), marks
    assert [each["table"] for each in marks if "table" in each] == [True, True], marks
    assert not marks[0]["x"], marks


def test_fifty_steps_of_training():
    """Pieces and the whole graph stay equal bit by bit; eager rounds otherwise at most in the last places."""
    def trained(compiler):
        torch.manual_seed(0)
        model = Stack([Block(dropout=0.1) for _ in range(LAYERS)])
        run = compiler(model)
        update = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for _ in range(50):
            update.zero_grad()
            loss = F.mse_loss(run(inputs()), torch.ones(2, 5, 3))
            loss.backward()
            update.step()
            losses.append(loss.detach())
        return [*losses, *[each.detach() for each in model.parameters()]]

    eager = trained(lambda model: model)
    whole = trained(lambda model: stator.compile(model, backend="aot_eager", options={"regions": "off"}))
    with events.record() as log:
        pieces = trained(lambda model: stator.compile(model, backend="aot_eager"))
    assert any(isinstance(event, events.GraphCut) for event in log)
    assert all(torch.equal(a, b) for a, b in zip(pieces, whole, strict=True))
    torch.testing.assert_close(pieces, eager, rtol=1e-4, atol=1e-5)
