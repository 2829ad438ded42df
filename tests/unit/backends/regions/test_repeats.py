"""Equal blocks between blocks of many sizes: each is compiled once, though nothing has a period."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stator
from stator.backends.regions import compilation
from stator.backends.regions.plan import Whole, plan_regions
from stator.backends.regions.repeats import Repeat, best_repeat, find_repeats, without
from tests.models.torchvision_ops import declare_missing
from tests.unit.backends.regions.test_regions import Block, inputs
from tests.unit.backends.regions.three_sides import on_three_sides, require_equal

PLACES = 5


class Wide(nn.Module):
    """A block of a width of its own."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(16, width), nn.Linear(width, 16), nn.LayerNorm(width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.norm(F.gelu(self.up(x)))))


class Alternating(nn.Module):
    """Equal blocks, each behind one of another width; the first results are needed again at the end."""

    def __init__(self, make=Block, between=Wide, skips=True):
        super().__init__()
        self.equal = nn.ModuleList([make() for _ in range(PLACES)])
        self.others = nn.ModuleList([between(4 + 2 * number) for number in range(PLACES)])
        self.skips = skips

    def forward(self, x):
        kept = []
        for equal, other in zip(self.equal, self.others, strict=True):
            x = equal(other(x))
            kept.append(x)
        return x + sum(kept[:2]) if self.skips else x


class Dropped(Block):
    def __init__(self):
        super().__init__(dropout=0.25)


class Writing(nn.Module):
    """Its last operation writes to what the block before has made."""

    def __init__(self, width):
        super().__init__()
        self.wide = Wide(width)

    def forward(self, x):
        return self.wide(x).mul_(0.5)


@pytest.mark.parametrize("around", [None, torch.no_grad])
@pytest.mark.parametrize("grad", [False, True])
def test_blocks_that_alternate_with_others(around, grad):
    sides = require_equal(on_three_sides(lambda: (Alternating(), [(inputs(grad=grad),), (inputs(grad=grad),)]),
                                         around=around))
    assert max(sides.uses, default=0) == PLACES, (sides.uses, sides.whole_because)


@pytest.mark.parametrize("make", [Dropped, Block])
@pytest.mark.parametrize("between", [Wide, Writing])
def test_random_numbers_and_writes_keep_their_order(make, between):
    sides = require_equal(on_three_sides(lambda: (Alternating(make, between, skips=False), [(inputs(),), (inputs(),)])))
    assert max(sides.uses, default=0) >= PLACES - 1, (sides.uses, sides.whole_because)


def test_sizes_that_change():
    sides = require_equal(on_three_sides(lambda: (Alternating(), [(inputs(2, 5, 16),), (inputs(3, 7, 16),)])))
    assert sides.uses.count(PLACES) == 2, (sides.uses, sides.whole_because)  # constant sizes, then symbols


def test_runs_and_others_in_one_graph():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.layers = Alternating(), nn.Sequential(*[Wide(24 + n % 2) for n in range(16)])

        def forward(self, x):
            return self.layers(self.first(x))

    sides = require_equal(on_three_sides(lambda: (Both(), [(inputs(grad=True),)])))
    assert PLACES in sides.uses and max(sides.uses) >= 7, (sides.uses, sides.whole_because)


def test_stretches_that_are_used_differently():
    """Equal operations, of which each time another value goes on: no two pieces are the same."""
    class Crossed(nn.Module):
        def __init__(self):
            super().__init__()
            self.others = nn.ModuleList([Wide(4 + 2 * number) for number in range(PLACES)])

        def forward(self, x):
            for number, other in enumerate(self.others):
                values = [other(x)]
                for step in range(24):
                    values.append(torch.sin(values[-1 - (number * step) % len(values)]) + values[number % len(values)])
                x = values[-1]
            return x

    sides = require_equal(on_three_sides(lambda: (Crossed(), [(inputs(grad=True),)])))
    assert not sides.uses and sides.whole_because == ["pieces that look alike are used differently"]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiler_that_fuses_gets_the_whole_graph(monkeypatch, backend):
    """Inductor shares equal kernels of one graph: more pieces are more to compile."""
    planned = []

    def plan_alone(gm, given, settings, mode, grad_enabled):
        try:
            planned.append(len(plan_regions(gm, given, replace(settings, backend=backend), mode, grad_enabled).pieces))
        except Whole as whole:
            planned.append(str(whole))
        raise Whole("")

    monkeypatch.setattr(compilation, "plan_regions", plan_alone)
    with torch.no_grad():
        stator.compile(Alternating(), backend="aot_eager")(inputs())
    assert planned == ["nothing repeats often enough"] if backend == "inductor" else planned[0] > PLACES, planned


def test_a_unet_of_diffusers():
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    declare_missing()

    def build():
        model = diffusers.UNet2DConditionModel(
            sample_size=8, in_channels=4, out_channels=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=16, attention_head_dim=8,
            block_out_channels=(16, 32), norm_num_groups=4, layers_per_block=2, mid_block_type=None)
        calls = [(torch.randn(1, 4, 8, 8), torch.tensor([step]), torch.randn(1, 4, 16)) for step in (3, 5)]
        return (lambda *args: model(*args).sample), calls

    sides = require_equal(on_three_sides(build))
    assert PLACES in sides.uses, (sides.uses, sides.whole_because)


def most_saved(numbers, least_repeats, least_length):
    """By looking at each stretch of each length."""
    most = 0
    for length in range(least_length, len(numbers)):
        seen = {}
        for place in range(len(numbers) - length + 1):
            seen.setdefault(tuple(numbers[place:place + length]), []).append(place)
        for places in seen.values():
            starts = []
            for place in places:
                if not starts or place >= starts[-1] + length:
                    starts.append(place)
            if len(starts) >= least_repeats:
                most = max(most, (len(starts) - 1) * length)
    return most


@pytest.mark.parametrize("seed", range(60))
def test_the_best_set_is_found(seed):
    choice = random.Random(seed)
    numbers = [choice.randrange(3) for _ in range(choice.randrange(5, 60))]
    repeats, length = choice.choice([(2, 3), (3, 2), (4, 2)])
    best = best_repeat(numbers, [(0, len(numbers))], repeats, length)
    assert (0 if best is None else best.saving) == most_saved(numbers, repeats, length)
    taken = [place for each in find_repeats(numbers, [(0, len(numbers))], repeats, length, length)
             for start in each.starts for place in range(start, start + each.length)]
    assert len(taken) == len(set(taken))


def test_stretches_stay_inside_what_is_free():
    numbers = [1, 2, 3, 4] * 6
    free = without([(0, 24)], [(4, 8), (12, 16)])
    assert free == [(0, 4), (8, 12), (16, 24)]
    assert find_repeats(numbers, free, 3, 2, 4) == [Repeat((0, 8, 16, 20), 4)]
    assert not find_repeats(numbers, [(0, 6), (8, 14)], 3, 4, 4)
