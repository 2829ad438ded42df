"""Probes: copies of tensors, alone and inside structures, and what they share with their originals afterwards."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import box, linear, one
from torch import nn

BREAKS = "SB005 SB016"


@probe()
def deep_copy_of_a_config_with_a_tensor():
    config: dict[str, Any] = {"a": [torch.ones(4)], "b": {"c": 3}}

    def fn(x):
        mine = copy.deepcopy(config)
        mine["a"][0].add_(x)
        mine["b"]["c"] += 1
        return mine, x + config["a"][0]

    return Scene(fn, one(ramp()), lambda: config["a"][0].add_(5), lambda: config)


@probe()
def deep_copy_of_one_tensor_in_two_places():
    tensor = torch.ones(4)
    pair = [tensor, tensor]

    def fn(x):
        first, second = copy.deepcopy(pair)
        first.add_(x)
        return first is second, first is tensor, first, second

    return Scene(fn, one(ramp()), lambda: pair.__setitem__(1, torch.ones(4)), lambda: pair)


@probe(BREAKS)
def deep_copy_of_a_tensor_that_comes_to_share_its_storage():
    pair = [torch.ones(4), torch.ones(4)]

    def fn(x):
        first, second = copy.deepcopy(pair)
        first.add_(x)
        return first, second

    return Scene(fn, one(ramp()), lambda: pair[1].set_(pair[0]), lambda: pair)


@probe(BREAKS)
def deep_copy_of_a_tensor_that_comes_to_have_an_attribute():
    slot = [torch.ones(4)]
    return Scene(lambda x: (x, vars(copy.deepcopy(slot)[0])), one(ramp()), lambda: setattr(slot[0], "tag", [1]))


@probe()
def deep_copy_of_a_leaf_that_wants_a_gradient():
    weight = torch.ones(4, requires_grad=True)

    def fn(x):
        mine = copy.deepcopy(weight)
        return mine.is_leaf, mine.requires_grad, (weight * mine * x).sum()

    return Scene(fn, one(ramp()), lambda: weight.requires_grad_(False))


@probe(BREAKS)
def deep_copy_of_a_leaf_with_a_gradient():
    weight = torch.ones(4, requires_grad=True)

    def fn(x):
        mine = copy.deepcopy(weight)
        return mine.grad is None, (x * mine * weight).sum()

    return Scene(fn, one(ramp()), lambda: weight.sum().backward(), lambda: weight.grad)


@probe(BREAKS)
def deep_copy_of_a_leaf_that_leaves():
    weight = torch.ones(4, requires_grad=True)
    return Scene(lambda x: (x, copy.deepcopy([weight])), one(ramp()), look=lambda: weight)


@probe(BREAKS)
def deep_copy_of_a_view():
    base = torch.ones(2, 8)

    def fn(x):
        mine = copy.deepcopy({"view": base[1, 2:6]})["view"]
        return mine + x, mine.storage_offset()

    return Scene(fn, one(ramp()), lambda: base.add_(1), lambda: base)


@probe()
def deep_copy_keeps_strides():
    slot = [torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)]
    return Scene(lambda x: (x, copy.deepcopy(slot)[0].stride()), one(ramp()),
                 lambda: slot.__setitem__(0, torch.ones(2, 3, 4, 5)))


@probe()
def deep_copy_of_a_fresh_tensor():
    def fn(x):
        made = x * 2
        mine = copy.deepcopy([made, made, 1])
        mine[0].add_(1)
        return made, mine[0] is mine[1], mine

    return Scene(fn, one(ramp()))


@probe("SB005 SB016 SB001")
def deep_copy_of_a_tensor_that_is_no_leaf():
    x = ramp(grad=True)

    def fn(x):
        try:
            return copy.deepcopy(x * 2)
        except RuntimeError as error:
            return str(error)

    return Scene(fn, one(x))


@probe()
def deep_copy_of_an_object_with_a_tensor():
    thing = box(scale=torch.ones(4), name="a")

    def fn(x):
        mine = copy.deepcopy(thing)
        mine.scale += x
        mine.name += "b"
        return mine.scale, mine.name, thing.scale

    return Scene(fn, one(ramp()), lambda: setattr(thing, "scale", torch.full((4,), 3.0)), lambda: vars(thing))


@probe()
def deep_copy_of_a_module_without_parameters():
    module = nn.BatchNorm1d(4, affine=False)

    def fn(x):
        mine = copy.deepcopy(module)
        return mine(x.reshape(2, 4)), mine.running_mean

    return Scene(fn, one(ramp(8)), lambda: module.running_mean.add_(1), lambda: module.state_dict())


@probe()
def deep_copy_of_a_module():
    module = linear()

    def change():
        with torch.no_grad():
            module.weight.add_(1)

    return Scene(lambda x: copy.deepcopy(module)(x), one(ramp()), change, lambda: module.state_dict())


@probe()
def shallow_copy_of_a_tensor():
    def fn(x):
        other = copy.copy(x)
        other.add_(1)
        return other is x, x, copy.copy([x, 1]), other * 2

    return Scene(fn, lambda: (ramp(),))


@probe(BREAKS)
def shallow_copy_of_a_tensor_that_comes_to_have_an_attribute():
    tensor = torch.ones(4)
    return Scene(lambda x: (x, vars(copy.copy(tensor))), one(ramp()), lambda: setattr(tensor, "tag", [1]))


@probe(BREAKS)
def shallow_copy_of_a_tensor_that_wants_a_gradient():
    weight = torch.ones(4, requires_grad=True)
    return Scene(lambda x: x * copy.copy(weight), one(ramp()), lambda: weight.requires_grad_(False))


@probe()
def config_pickled_and_read_again():
    config = {"a": [1, 2, {"b": (3, 4.5, None)}], "n": "text", "again": "text"}

    def fn(x):
        text = pickle.dumps(config)
        made = pickle.loads(text)
        made["a"].append(len(config))
        return x * made["a"][0], made, text, made["a"] is config["a"], pickle.dumps({1, 2}, protocol=2)

    return Scene(fn, one(ramp()), lambda: config.update(n="other", more=[True]), lambda: config)


@probe()
def shared_parts_pickled():
    part = [1]
    config = {"first": part, "second": part, "self": None}
    config["self"] = config["first"]

    def fn(x):
        made = pickle.loads(pickle.dumps(config))
        return x + 1, made["first"] is made["second"], made

    return Scene(fn, one(ramp()), lambda: config.update(second=[1]), lambda: config)


class Pickled:
    def __reduce__(self) -> Any:
        return list, ()


@probe("SB001")
def objects_pickled():
    config = {"object": Pickled()}
    text = pickle.dumps(Pickled())
    return Scene(lambda x: (x + 1, pickle.loads(pickle.dumps(config)), pickle.loads(text)), one(ramp()),
                 lambda: config.update(more=Pickled()))


@probe()
def texts_pickled_that_come_to_be_two():
    config = ["some text"] * 2
    return Scene(lambda x: (x + 1, pickle.dumps(config)), one(ramp()),
                 lambda: config.__setitem__(1, " ".join(["some", "text"])), lambda: config)
