"""torch's random streams inside captured code: seeding, states, generators; the same stream as eager, call by call."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.torch_api.side_by_side import Register, World, compare

whole, broken = Register(), Register()


def values(seed: int = 3) -> torch.Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))


def one(function: Any, look: Any = lambda: None) -> World:
    return World(function, lambda i: (values(i),), look)


def bad_index(step: int) -> torch.Tensor:
    return torch.tensor([0, 77 if step == 1 else 1])


# ---------------------------------------------------------------------- the default stream


@whole
def seeded_between_draws() -> World:
    def program(x):
        before = torch.rand(3)
        returned = torch.manual_seed(5)
        return before, torch.rand(3), x + torch.randn(4), returned is torch.default_generator
    return one(program)


@whole
def seeded_by_a_tensor() -> World:
    def program(x, seed):
        torch.manual_seed(seed.item())
        return x + torch.rand(4)
    return World(program, lambda i: (values(), torch.tensor(i)))


@whole
def drawn_twice_from_one_state() -> World:
    def program(x):
        state = torch.get_rng_state()
        first = F.dropout(x, 0.5)
        torch.set_rng_state(state)
        return first, F.dropout(x, 0.5)
    return one(program)


@whole
def outside_state() -> World:
    state = torch.get_rng_state()

    def program(x):
        torch.set_rng_state(state)
        return F.dropout(x, 0.5)
    return one(program)


# Where there are GPUs, their streams are forked by default too, which breaks.
CPU_ALONE: dict[str, Any] = {"devices": []} if torch.cuda.is_available() else {}


@whole
def forked() -> World:
    def program(x):
        before = torch.rand(4)
        try:
            with torch.random.fork_rng(**CPU_ALONE):
                torch.manual_seed(1)
                inside = torch.rand(4)
                raise ValueError
        except ValueError:
            pass
        with torch.random.fork_rng(devices=[]), torch.random.fork_rng(enabled=False):
            more = torch.rand(4)
        return x + before + inside + more, torch.rand(4)
    return one(program)


@whole
def layers_that_seed() -> World:
    class Noise(nn.Module):
        def __init__(self, seed):
            super().__init__()
            self.seed, self.layer = seed, nn.Linear(4, 4)

        def forward(self, x):
            torch.manual_seed(self.seed)
            return self.layer(x) + torch.randn(4)
    return one(nn.Sequential(*map(Noise, range(4))))


@whole
def failing_after_a_seed() -> World:
    def program(x, index):
        before = torch.rand(4)
        torch.manual_seed(3)
        return (x + torch.rand(4) + before)[index]
    return World(program, lambda i: (values(i), bad_index(i)))


@broken
def a_state_decides() -> World:
    def program(x):
        first = torch.get_rng_state()
        x = F.dropout(x, 0.5)
        return x if (first == torch.get_rng_state()).all() else x + 1
    return one(program)


@broken
def seeded_with_text() -> World:
    def program(x):
        try:
            torch.manual_seed("a")
        except ValueError as error:
            return x + 1, str(error)
        return x
    return one(program)


@broken
def asked_for_its_seed() -> World:
    def program(x):
        torch.manual_seed(3)
        return x + torch.initial_seed()
    return one(program)


# ---------------------------------------------------------------------- generators


@whole
def generator_from_outside() -> World:
    stream = torch.Generator().manual_seed(1)

    def program(x):
        shuffled = x[:, torch.randperm(4, generator=stream)]
        weight = nn.init.xavier_uniform_(torch.empty(4, 4), generator=stream)
        picked = torch.multinomial(x.softmax(-1), 2, generator=stream)
        return shuffled @ weight, picked, torch.bernoulli(x.sigmoid(), generator=stream), x.clone().normal_(generator=stream)
    return one(program, stream.get_state)


@whole
def another_generator_each_time() -> World:
    def program(x, stream):
        return x + torch.randn(4, generator=stream, device=stream.device)
    return World(program, lambda i: (values(), torch.Generator().manual_seed(i)))


@whole
def one_generator_by_two_names() -> World:
    streams = [torch.Generator().manual_seed(i) for i in range(2)]

    def program(x, first, second):
        return x + torch.rand(4, generator=first), torch.rand(4, generator=second)
    return World(program, lambda i: (values(), streams[0], streams[1] if i < 2 else streams[0]),
                 lambda: [stream.get_state() for stream in streams])


@whole
def generator_made_inside() -> World:
    def program(x):
        stream = torch.Generator().manual_seed(7)
        first = torch.rand(4, generator=stream)
        stream.manual_seed(9)
        return x + first, torch.randn(2, generator=stream), stream.get_state(), str(stream.device)
    return one(program)


@whole
def generator_that_leaves() -> World:
    kept: list[torch.Generator] = []

    def program(x):
        stream = torch.Generator("cpu")
        stream.manual_seed(7)
        kept.append(stream)
        return x + torch.rand(4, generator=stream), stream
    return one(program, lambda: [stream.get_state() for stream in kept])


@whole
def state_of_a_generator() -> World:
    stream = torch.Generator().manual_seed(1)

    def program(x):
        state = stream.get_state()
        first = torch.rand(4, generator=stream)
        stream.set_state(state)
        return x + first, torch.rand(4, generator=stream)
    return one(program, stream.get_state)


@whole
def layers_with_generators() -> World:
    class Noise(nn.Module):
        def __init__(self, seed):
            super().__init__()
            self.stream, self.layer = torch.Generator().manual_seed(seed), nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x) + torch.randn(4, generator=self.stream)
    model = nn.Sequential(*map(Noise, range(4)))
    return one(model, lambda: [layer.stream.get_state() for layer in model])


@whole
def failing_after_a_draw() -> World:
    stream = torch.Generator().manual_seed(1)

    def program(x, index):
        return (x + torch.rand(4, generator=stream))[index]
    return World(program, lambda i: (values(i), bad_index(i)), stream.get_state)


@broken
def generator_asked_for_its_seed() -> World:
    def program(x):
        return x + torch.Generator().manual_seed(7).initial_seed()
    return one(program)


@whole
def states_of_the_default_stream() -> World:
    def program(x):
        state = torch.get_rng_state()
        first = torch.rand(3)
        torch.set_rng_state(state)
        again = torch.rand(3)
        torch.set_rng_state(new_state=state)
        return first, again, torch.rand(3) + x[0, :3], state.shape, state.numel() > 9, state.dtype
    return one(program)


@broken
def a_state_that_is_none() -> World:
    def program(x, state):
        try:
            torch.set_rng_state(state)
        except (TypeError, RuntimeError, AttributeError) as error:
            return x + 1, type(error)
        return x + torch.rand(4)
    return World(program, lambda i: (values(), (None, torch.zeros(3), 5)[i % 3]))


@broken
def numpy_draws_around_an_array() -> World:
    stream = numpy.random.RandomState(3)

    def program(x, centre):
        drawn = stream.normal(centre)
        return x + float(drawn[0]), float(stream.uniform(0, centre[1]))
    return World(program, lambda i: (values(), numpy.array([10.0 * i, 5.0 + i])))


@broken
def state_of_pythons_stream_past_its_class() -> World:
    stream = random.Random(5)

    def program(x):
        made = random.Random(3)
        return x + 1, super(random.Random, stream).getstate()[:4], stream.random(), super(random.Random, made).getstate()[:4]
    return one(program)


# ---------------------------------------------------------------------- judged


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")


@pytest.mark.parametrize("make", whole, ids=lambda make: make.__name__)
def test_captured(make: Callable[[], World]) -> None:
    assert not compare(make, 3).breaks


@pytest.mark.parametrize("make", broken, ids=lambda make: make.__name__)
def test_broken(make: Callable[[], World]) -> None:
    assert compare(make, 3).breaks


@pytest.mark.parametrize("make", whole, ids=lambda make: make.__name__)
def test_with_a_compiler_that_reorders(make: Callable[[], World]) -> None:
    """There each use of a stream is a break."""
    assert "SB013" in compare(make, 3, "aot_eager", 1e-5).breaks


def test_a_generator_is_no_fact() -> None:
    """Another generator is no reason to capture again; where it is asked for its device, another device is."""
    assert compare(another_generator_each_time, 4).captures == [1, 0, 0, 0]
