"""Probes: attributes and slots of objects outside, their identity, and modules as objects, each changed between calls."""

from __future__ import annotations

import dataclasses
import traceback
from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import Thing, box, one
from torch import nn


@probe()
def attribute():
    thing = box(k=2)
    return Scene(lambda x: x * thing.k, one(ramp()), lambda: setattr(thing, "k", 3), lambda: vars(thing))


@probe()
def attribute_of_an_argument():
    thing = box(k=2)
    return Scene(lambda t, x: x * t.k, lambda: (thing, ramp()), lambda: setattr(thing, "k", 2.0))


@probe()
def attribute_that_appears():
    thing = box()
    return Scene(lambda x: x * getattr(thing, "k", 5), one(ramp()), lambda: setattr(thing, "k", 3))


@probe()
def attribute_that_goes():
    thing = box(k=2)
    return Scene(lambda x: x * (thing.k if hasattr(thing, "k") else 7), one(ramp()), lambda: delattr(thing, "k"))


@probe()
def type_of_an_equal_constant():
    thing = box(k=1)
    return Scene(lambda x: (x * thing.k, thing.k), one(ramp()), lambda: setattr(thing, "k", True))


@probe()
def sign_of_zero():
    thing = box(k=0.0)
    return Scene(lambda x: x.sign() / x.new_tensor(1.0) + thing.k * -1.0, one(torch.zeros(2)), lambda: setattr(thing, "k", -0.0))


@probe()
def slot():
    class Config:
        __slots__ = ("k", "unset")

    config = Config()
    config.k = 2
    return Scene(lambda x: x * config.k + hasattr(config, "unset"), one(ramp()), lambda: setattr(config, "unset", 3))


@probe()
def dataclass_field():
    @dataclasses.dataclass
    class Config:
        k: int = 2

    config = Config()
    return Scene(lambda x: x * dataclasses.replace(config, k=config.k + 1).k, one(ramp()), lambda: setattr(config, "k", 4))


@probe()
def identity_of_two_attributes():
    shared = [1]
    thing = box(a=shared, b=shared)
    return Scene(lambda x: x * 2 if thing.a is thing.b else x * 3, one(ramp()), lambda: setattr(thing, "b", [1]))


@probe()
def identity_of_two_attributes_that_meet():
    thing = box(a=[1], b=[1])

    def fn(x):
        thing.a[0] = 5
        return x * thing.b[0]

    def change():
        thing.a[0] = 1
        thing.b = thing.a

    return Scene(fn, one(ramp()), change, lambda: vars(thing))


@probe()
def submodule_replaced():
    model = nn.Sequential(nn.ReLU(), nn.Tanh())
    return Scene(lambda x: model(x), one(ramp()), lambda: model.__setitem__(1, nn.Sigmoid()))


@probe()
def module_appended():
    model = nn.Sequential(nn.ReLU())
    return Scene(lambda x: model(x), one(ramp()), lambda: model.append(nn.Sigmoid()))


@probe()
def forward_hidden_by_an_instance():
    model = nn.Sequential(nn.ReLU())
    return Scene(lambda x: model(x), one(ramp()), lambda: setattr(model[0], "forward", lambda x: x * 3))


@probe()
def training_flag():
    torch.manual_seed(0)
    model = nn.Dropout(0.5).eval()
    return Scene(lambda x: model(x), lambda: (torch.manual_seed(1) and ramp(),), lambda: model.train())


@probe()
def slot_written():
    class Config:
        __slots__ = ("k",)

    config = Config()
    config.k = 2

    def fn(x):
        config.k += 1
        return x * config.k

    return Scene(fn, one(ramp()), lambda: setattr(config, "k", 8), lambda: config.k)


@probe()
def instance_dict_as_a_value():
    thing = box(k=2)

    def fn(x):
        own = vars(thing)
        own["k"] = own["k"] + 1
        return x * thing.k, own is thing.__dict__, own

    return Scene(fn, one(ramp()), lambda: setattr(thing, "k", 8), lambda: (thing, thing.__dict__))


@probe()
def instance_dict_of_a_fresh_object():
    def fn(x):
        thing = Thing()
        own = thing.__dict__
        own["k"] = x.shape[0]
        return x * thing.k, thing, own

    return Scene(fn, one(ramp()))


@probe()
def attribute_deleted():
    thing = box(k=2)

    def fn(x):
        if hasattr(thing, "k"):
            del thing.k
            return x * 2
        thing.k = 5
        return x * 3

    return Scene(fn, one(ramp()), lambda: vars(thing).clear(), lambda: vars(thing))


@probe("raises")
def attribute_deleted_that_may_be_gone():
    thing = box(k=2, j=1)

    def fn(x):
        del thing.k
        return x * 2

    return Scene(fn, one(ramp()), lambda: setattr(thing, "k", 4), lambda: vars(thing))


def written_and_deleted(thing: Any, present: bool) -> Scene:
    """An attribute that is written and deleted without being read first: was it there?"""
    if present:
        thing.k = 4

    def fn(x):
        thing.k = 3
        y = x * thing.k
        del thing.k
        return y

    return Scene(fn, one(ramp()), lambda: setattr(thing, "k", 7), lambda: hasattr(thing, "k"))


class OneSlot:
    """A holder of one attribute."""

    __slots__ = ("k",)


@probe()
def attribute_written_and_deleted():
    return written_and_deleted(box(), True)


@probe()
def new_attribute_written_and_deleted():
    return written_and_deleted(box(), False)


@probe()
def slot_written_and_deleted():
    return written_and_deleted(OneSlot(), True)


@probe()
def empty_slot_written_and_deleted():
    return written_and_deleted(OneSlot(), False)


@probe()
def attribute_of_a_function_written_and_deleted():
    return written_and_deleted(lambda: None, True)


@probe()
def new_attribute_of_a_function_written_and_deleted():
    return written_and_deleted(lambda: None, False)


@probe()
def traceback_of_an_outside_exception():
    """C code raises it while tracing, through frames of the interpreter."""
    error = ValueError("kept")

    def key(n):
        raise error

    def fn(x):
        try:
            sorted([2, 1], key=key)
        except ValueError as caught:
            return x + 1, caught is error

    return Scene(fn, one(ramp()), look=lambda: [frame.name for frame in traceback.extract_tb(error.__traceback__)])
