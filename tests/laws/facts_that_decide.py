"""Probes: facts of tensors and of torch's settings that decide what a program does, so that no graph can follow them."""

from __future__ import annotations

import contextlib

import torch
from probing import Scene, probe, ramp
from scenery import box, linear, one
from torch import nn
from torch.overrides import TorchFunctionMode


@probe()
def data_swapped_whose_size_decides():
    weight = nn.Parameter(torch.ones(4))
    return Scene(lambda x: x * weight.shape[0] + weight.numel(), one(ramp()),
                 lambda: setattr(weight, "data", torch.ones(7)), lambda: weight)


@probe()
def buffer_whose_size_decides():
    module = linear()
    module.register_buffer("steps", torch.ones(3))

    def fn(x):
        for _ in range(len(module.steps)):
            x = x + 1
        return x

    return Scene(fn, one(ramp()), lambda: module.register_buffer("steps", torch.ones(5)), lambda: module.steps)


@probe()
def shapes_that_decide_an_order():
    tensors = [torch.ones(3), torch.ones(1), torch.ones(2)]

    def fn(x):
        order = sorted(range(3), key=lambda n: tensors[n].shape[0])
        return x + order[0], order

    return Scene(fn, one(ramp()), lambda: tensors.__setitem__(0, torch.ones(0)))


@probe()
def branch_on_autocast():
    on = [False]

    def around():
        return torch.autocast("cpu", enabled=on[0])

    return Scene(lambda x: x * 2 if torch.is_autocast_enabled("cpu") else x + 1, one(ramp()),
                 lambda: on.__setitem__(0, True), around=around)


@probe()
def branch_on_the_default_dtype():
    return Scene(lambda x: (x + 1, torch.get_default_dtype()), one(ramp()),
                 lambda: torch.set_default_dtype(torch.float64), undo=lambda: torch.set_default_dtype(torch.float32))


class NineDimensions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return 9 if func is torch.Tensor.dim else func(*args, **(kwargs or {}))


@probe()
def mode_that_decides():
    modes = [contextlib.nullcontext]
    return Scene(lambda x: x * x.dim(), one(ramp()), lambda: modes.__setitem__(0, NineDimensions),
                 around=lambda: modes[0]())


@probe()
def identity_as_a_number():
    thing, other = box(), box()
    slot, known = [thing], id(thing)
    return Scene(lambda x: x * 2 if id(slot[0]) == known else x * 3, one(ramp()), lambda: slot.__setitem__(0, other))


@probe()
def hash_as_a_number():
    thing, other = box(), box()
    slot, known = [thing], hash(thing)
    return Scene(lambda x: x * 2 if hash(slot[0]) == known else x * 3, one(ramp()), lambda: slot.__setitem__(0, other))


@probe()
def defaults_that_are_replaced():
    def scale(x, k=2):
        return x * k

    return Scene(lambda x: scale(x), one(ramp()), lambda: setattr(scale, "__defaults__", (3,)))
