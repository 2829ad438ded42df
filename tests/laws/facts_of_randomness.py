"""Probes: random streams of Python, numpy and torch advance as eager's do, inside and afterwards."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from probing import Scene, probe, ramp
from scenery import one


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


@probe("SB001 SB005 SB013")
def random_module():
    def args():
        random.seed(3)
        return (ramp(),)

    return Scene(lambda x: x * random.random() + random.randint(1, 9), args, look=lambda: random.getstate())


@probe("SB001 SB005 SB006 SB013")
def random_object():
    stream = random.Random(3)

    def fn(x):
        return x * stream.choice([1, 2, 3, 4])

    return Scene(fn, one(ramp()), look=lambda: stream.getstate())


@probe("SB001 SB005 SB013")
def numpy_random():
    def args():
        np.random.seed(3)
        return (ramp(),)

    return Scene(lambda x: x * float(np.random.rand()), args, look=lambda: np.random.get_state()[2])


@probe("SB001 SB005 SB006 SB013")
def numpy_generator():
    stream = np.random.default_rng(3)
    return Scene(lambda x: x * float(stream.random()), one(ramp()), look=lambda: str(stream.bit_generator.state))
