"""Probes: choice(), choices(), sample() and shuffle() of streams that nobody has seeded inside, equal to eager's."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from probing import Scene, nothing, probe, ramp
from scenery import linear, one

import stator


def on_streams(fn: Callable[..., Any], change: Callable[[], Any] = nothing,
               look: Callable[[], Any] = nothing) -> Scene:
    """A scene whose global streams of Python and numpy stand where they stand at every making, and are looked at."""
    python, numpy_ = random.getstate(), np.random.get_state()
    random.seed(5)
    np.random.seed(5)

    def undo() -> None:
        random.setstate(python)
        np.random.set_state(numpy_)

    return Scene(fn, one(ramp()), change, lambda: (look(), hash(random.getstate()), str(np.random.get_state())), undo)


@probe()
def choice_among_numbers():
    options = [1, 2, 3, 4]

    def fn(x):
        picked = random.choice(options), random.choice((1.5, 2.5)), random.choice(range(3, 9))
        options.append(7)
        options[0] = 100
        return x * picked[0] + picked[1], picked

    return on_streams(fn, lambda: options.append(9), lambda: options)


@probe("SB013")
def choice_among_other_things():
    tensors = [torch.full((4,), float(n)) for n in range(4)]
    return on_streams(lambda x: (x + random.choice(tensors), random.choice("abc"), random.choice([1, 2.5])),
                      lambda: tensors.pop())


@probe("SB013")
def choice_among_nothing():
    def fn(x):
        try:
            return x * random.choice([])
        except IndexError as error:
            return str(error)

    return on_streams(fn)


@probe()
def samples_of_numbers():
    weights = [1, 3]

    def fn(x):
        places = random.sample(range(10), 3)
        drawn = random.choices([1.0, 2.0], weights=weights, k=2)
        return x * places[0] + sum(drawn), places, drawn, torch.arange(40.0).reshape(10, 4)[places]

    return on_streams(fn, lambda: weights.__setitem__(0, 5), lambda: weights)


@probe()
def numbers_shuffled():
    order = [1, 2, 3, 4, 5]

    def fn(x):
        mine = [0.5, 1.5, 2.5]
        random.shuffle(mine)
        random.shuffle(order)
        return x * order[0] + mine[1], mine

    return on_streams(fn, lambda: order.append(6), lambda: order)


@probe("SB013")
def names_shuffled():
    names = ["a", "b", "c"]

    def fn(x):
        random.shuffle(names)
        return x + 1

    return on_streams(fn, lambda: names.append("d"), lambda: names)


@probe()
def choices_of_a_stream_from_outside():
    stream = random.Random(4)

    def fn(x):
        order = list(range(5))
        stream.shuffle(order)
        return x * stream.choice([1, 2, 3]) + stream.random(), stream.sample(range(4), 2), order

    return on_streams(fn, lambda: stream.random(), lambda: hash(stream.getstate()))


class Quarter(random.Random):
    """A stream in whose methods Python code takes part."""

    def random(self) -> float:
        return 0.25


@probe("SB013")
def choices_of_a_stream_of_the_program():
    stream = Quarter(4)
    return on_streams(lambda x: (x * stream.choice([1, 2, 3]), stream.uniform(1, 2)), lambda: stream.seed(3),
                      lambda: hash(stream.getstate()))


@probe("SB003")
def branch_on_a_choice():
    def fn(x):
        picked = random.choice([1, 2, 3])
        return x * 2 if picked == 2 else x + picked

    return on_streams(fn)


@probe("SB009")
def choices_before_a_break():
    def fn(x):
        picked, places = random.choice([1, 2, 3]), random.sample(range(5), 2)
        stator.graph_break()
        return x + picked, places

    return on_streams(fn)


@probe()
def choices_between_other_draws():
    module = linear()

    def fn(x):
        first = random.random()
        mine = copy.deepcopy(module)
        picked, places = random.choice([1, 2, 3]), random.sample([1, 2, 3, 4], 2)
        return mine(x) * first + picked, places, np.random.rand(), random.randint(1, 4)

    return on_streams(fn, lambda: random.random(), lambda: module.state_dict())


@probe("SB013")
def orders_of_numpy():
    generator = np.random.default_rng(3)

    def fn(x):
        mine = np.arange(5.0)
        np.random.shuffle(mine)
        generator.shuffle(mine)
        return x * generator.choice([1, 2, 3]), np.random.choice([1, 2, 3]), np.random.permutation(4), mine

    return on_streams(fn, lambda: generator.random(), lambda: str(generator.bit_generator.state))
