"""Probes: random streams of Python, numpy and torch advance as eager's do, inside and afterwards."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import torch
from probing import RAISES, Scene, probe, ramp
from scenery import box, one
from torch import nn

import stator


def seeded(*args: Any) -> Any:
    def make():
        torch.manual_seed(3)
        return args
    return make


@probe()
def random_stream():
    return Scene(lambda x: x + torch.rand(4), seeded(ramp()), look=lambda: torch.get_rng_state())


@probe()
def random_stream_in_place():
    return Scene(lambda x: x.clone().normal_() + torch.nn.functional.dropout(x), seeded(ramp()), look=lambda: torch.get_rng_state())


@probe("SB005 SB010 SB013")
def random_seed_set_inside():
    def fn(x):
        torch.manual_seed(5)
        return x + torch.rand(4)

    return Scene(fn, seeded(ramp()), look=lambda: torch.get_rng_state())


@probe("SB013 SB005")
def random_generator():
    generator = torch.Generator()
    generator.manual_seed(3)
    return Scene(lambda x: x + torch.rand(4, generator=generator), one(ramp()), lambda: generator.manual_seed(8),
                 lambda: generator.get_state())


@probe("SB001 SB005 SB013 SB014")
def random_state_forked():
    def fn(x):
        with torch.random.fork_rng(devices=[]):
            y = torch.rand(4)
        return x + y + torch.rand(4)

    return Scene(fn, seeded(ramp()), look=lambda: torch.get_rng_state())


@probe()
def random_module():
    def args():
        random.seed(3)
        return (ramp(),)

    return Scene(lambda x: x * random.random() + random.randint(1, 9), args, look=lambda: random.getstate())


@probe("SB013")
def random_object():
    stream = random.Random(3)

    def fn(x):
        return x * stream.choice([1, 2, 3, 4])

    return Scene(fn, one(ramp()), look=lambda: stream.getstate())


@probe()
def numpy_random():
    def args():
        np.random.seed(3)
        return (ramp(),)

    return Scene(lambda x: x * float(np.random.rand()), args, look=lambda: np.random.get_state()[2])


@probe()
def numpy_generator():
    stream = np.random.default_rng(3)
    return Scene(lambda x: x * float(stream.random()), one(ramp()), look=lambda: str(stream.bit_generator.state))


# ---------------------------------------------------------------------- numbers that the residual draws


def every_stream() -> Any:
    return (hash(random.getstate()), np.random.get_state()[1].sum(), np.random.get_state()[2], torch.get_rng_state())


def draw_elsewhere() -> None:
    random.random()
    np.random.rand()
    torch.rand(1)


def drawing(fn: Any, change: Any = draw_elsewhere, look: Any = every_stream) -> Scene:
    """A scene on streams that begin anew; whatever fn draws, they are looked at afterwards."""
    random.seed(3)
    np.random.seed(4)
    torch.manual_seed(5)
    return Scene(fn, one(ramp()), change, look)


@probe()
def random_number_in_arithmetic():
    def fn(x):
        u, v = random.random(), random.uniform(0.3, 1.7)
        return x * (u * 0.1 * 3.0), (u + 0.1) + v, v / u, -u, u ** 2, random.gauss(0, 1), math.floor(u * 7)

    return drawing(fn)


@probe()
def random_integer_as_a_size():
    return drawing(lambda x: (torch.zeros(random.randint(1, 9)) + x.sum(), x[random.randrange(4)], x * random.getrandbits(3)))


@probe()
def random_number_stored_and_shown():
    world = box(log=[], k=0)

    def fn(x):
        world.k = random.random()
        world.log.append(random.randint(0, 9))
        print("drawn", world.k)
        return x * world.k

    return drawing(fn, look=lambda: (every_stream(), world.k, list(world.log)))


@probe()
def random_number_that_nobody_reads():
    class Dropping(nn.Module):
        rate = 0.5

        def forward(self, x):
            for _ in range(3):
                drawn = random.uniform(0, 1)
                if self.training and drawn < self.rate:
                    continue
                x = x + 1
            return x

    model = Dropping().eval()
    return drawing(lambda x: model(x))


@probe("SB002 SB003")
def random_number_that_decides():
    world = box(rate=0.5)

    def fn(x):
        for place in range(4):
            if np.random.random() < world.rate:
                x = x + place
        return x

    return drawing(fn, lambda: setattr(world, "rate", 0.9))


@probe("SB013")
def random_choices_and_orders():
    def fn(x):
        order = [1, 2, 3, 4]
        random.shuffle(order)
        return x * random.choice([1, 2, 3]), order, random.sample(range(9), 3)

    return drawing(fn)


@probe("SB003 SB006 SB013 SB024")
def random_mask_of_numpy():
    """As SpecAugment makes its masks."""
    def fn(x):
        count = int(0.5 * 4 + np.random.rand(1).item())
        mask = np.zeros((2, 4), dtype=bool)
        for row in range(2):
            mask[row, np.random.choice(np.arange(4), count, replace=False)] = True
        return x.masked_fill(torch.from_numpy(mask)[0], 0.0)

    return drawing(fn)


@probe("SB001 SB013")
def random_streams_seeded_inside():
    def fn(x):
        random.seed(7)
        np.random.seed(8)
        kept = random.getstate()
        first = random.random()
        random.setstate(kept)
        return x * first, random.random(), np.random.rand()

    return drawing(fn)


@probe()
def random_objects_that_come_to_be_one():
    first = random.Random(1)
    world = box(a=first, b=random.Random(2))

    def fn(x):
        return x * world.a.random() - world.b.random(), world.a.random()

    return drawing(fn, lambda: setattr(world, "b", first), lambda: (hash(world.a.getstate()), hash(world.b.getstate())))


@probe("SB013")
def random_object_of_a_subclass():
    class Quarter(random.Random):
        def random(self):
            return 0.25

    stream = Quarter(3)
    return drawing(lambda x: (x * stream.random(), stream.uniform(1, 2), stream.randint(1, 5)))


@probe()
def random_method_replaced():
    uniform = random.Random.uniform
    scene = drawing(lambda x: x * random.uniform(1, 2), lambda: setattr(random.Random, "uniform", lambda self, a, b: 7.0))
    scene.undo = lambda: setattr(random.Random, "uniform", uniform)
    return scene


@probe(RAISES)
def random_number_before_a_graph_that_fails():
    index = [torch.tensor([0, 1])]

    def fn(x):
        scale = random.random() * np.random.rand()
        return x[index[0]] * scale

    return drawing(fn, lambda: index.__setitem__(0, torch.tensor([0, 99])))


@probe("SB013")
def random_number_with_arguments_that_are_refused():
    def fn(x):
        try:
            return x * random.randint(5, 1)
        except ValueError as error:
            return x, str(error)

    return drawing(fn)


@probe("SB013")
def torch_state_saved_and_restored():
    def fn(x):
        kept = torch.get_rng_state()
        first = torch.rand(4)
        torch.set_rng_state(kept)
        return x * first, torch.rand(4)

    return drawing(fn)


@probe("SB001 SB005 SB013")
def torch_generator_made_inside():
    def fn(x):
        generator = torch.Generator().manual_seed(4)
        return x * torch.rand(4, generator=generator), generator.initial_seed()

    return drawing(fn)


# ---------------------------------------------------------------------- arrays, and streams that are known


def streams() -> Any:
    """Python's and numpy's global streams, seeded; and one stream of each kind of one's own."""
    random.seed(7)
    np.random.seed(7)
    return box(python=random.Random(3), numpy=np.random.default_rng(3), old=np.random.RandomState(3))


def moving(fn: Any) -> Scene:
    """`fn(x, own)`; the change moves every stream on."""
    own = streams()

    def change() -> None:
        random.random(), np.random.rand(), own.python.random(), own.numpy.random(), own.old.rand()

    return Scene(lambda x: fn(x, own), one(ramp()), change, lambda: (
        random.getstate(), str(np.random.get_state()), own.python.getstate(), str(own.numpy.bit_generator.state),
        str(own.old.get_state())))


@probe()
def drawn_arrays_as_tensors():
    def fn(x, own):
        y = x[:3] + torch.from_numpy(np.random.rand(3)) + torch.from_numpy(own.numpy.normal(size=3))
        return y.sum() + x[torch.from_numpy(np.random.permutation(4))] + torch.tensor(own.old.uniform(0, 2, size=(4,)))

    return moving(fn)


@probe()
def drawn_arrays_as_results():
    def fn(x, own):
        drawn = np.random.randn(2, 3)
        torch.from_numpy(drawn).add_(1)
        return x + 1, drawn, own.numpy.permutation(5), np.random.choice(5, 3), own.old.randint(0, 9, 4), drawn.shape

    return moving(fn)


@probe("SB003")
def drawn_arrays_looked_at():
    return moving(lambda x, own: x * np.random.rand(3).sum())


@probe(RAISES)
def drawn_arrays_before_an_error():
    def fn(x, own):
        return x[torch.from_numpy(own.numpy.integers(0, 4, size=2)) + torch.from_numpy(np.random.randint(2, 6, size=2))]

    return moving(fn)


@probe()
def streams_made_inside():
    def fn(x, own):
        mine, old, new = random.Random(5), np.random.RandomState(5), np.random.default_rng(5)
        order = [1, 2, 3, 4]
        mine.shuffle(order)
        return x * mine.random() + old.rand() + new.random(), order, mine.sample(range(20), 3), mine.choice("abc"), \
            mine.gauss(0, 1), old.permutation(4), new.normal(size=2), new.integers(9)

    return moving(fn)


@probe("SB009 SB013")
def streams_made_inside_that_leave():
    def fn(x, own):
        mine, old, new = random.Random(5), np.random.RandomState(5), np.random.default_rng(5)
        x = x * mine.random() + old.rand() + new.random()
        stator.graph_break()
        return x, mine.getstate(), mine.gauss(0, 1), old.rand(2), new.random(2)

    return moving(fn)


@probe()
def streams_seeded_inside():
    def fn(x, own):
        first = random.random()
        random.seed(11)
        np.random.seed(12)
        own.python.seed("text")
        own.old.seed(13)
        picked = random.choices([1, 2, 3], k=4), own.python.sample(range(9), 2), random.getrandbits(5)
        return x * first + np.random.rand() + own.old.rand(), picked, np.random.permutation(3)

    return moving(fn)


@probe()
def streams_set_back_inside():
    def fn(x, own):
        random.seed(11)
        state = random.getstate()
        first = random.random()
        random.setstate(state)
        return x * (first - random.random()), state == random.getstate()

    return moving(fn)


@probe("SB013")
def streams_that_pick_objects():
    def fn(x, own):
        order = [1, 2, 3, 4]
        random.shuffle(order)
        return x + random.choice([1, 2, 3]), random.sample(range(10), 3), own.python.choices("ab", weights=[1, 2]), order

    return moving(fn)


@probe("SB002 SB003")
def drawn_arrays_that_decide():
    def fn(x, own):
        drawn = torch.from_numpy(np.random.permutation(4))
        if drawn[0] > 1:
            return x + drawn
        return x - drawn[: drawn[1]].sum()

    return moving(fn)
