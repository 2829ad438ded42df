"""Probes: deep copies of Parameters, modules and views, which the residual makes before the graph runs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import linear, one
from torch import nn


def shifting(module: nn.Module) -> Callable[[], None]:
    def change() -> None:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(1)
    return change


def filled(module: nn.Module) -> Any:
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.fill_(number + 0.5)
    return module


@probe()
def copied_module_called():
    module = linear()
    return Scene(lambda x: copy.deepcopy(module)(x), one(ramp()), shifting(module), lambda: module.state_dict())


@probe()
def copied_module_returned():
    module = filled(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()))

    def fn(x):
        mine = copy.deepcopy(module)
        return mine, mine(x.reshape(2, 4)), mine[0].weight is module[0].weight, mine.training

    return Scene(fn, one(ramp(8)), shifting(module), lambda: module)


@probe()
def copied_module_written():
    module = linear()

    def fn(x):
        mine = copy.deepcopy(module)
        with torch.no_grad():
            mine.weight.add_(1)
            mine.bias.mul_(2)
        return mine(x), module(x), mine.weight

    return Scene(fn, one(ramp()), shifting(module), lambda: module.state_dict())


@probe("SB005")
def module_written_and_copied():
    module = linear()

    def fn(x):
        with torch.no_grad():
            module.weight.add_(1)
        mine = copy.deepcopy(module)
        return mine(x), module(x), mine.weight

    return Scene(fn, one(ramp()), shifting(module), lambda: module.state_dict())


@probe("SB005")
def module_written_through_data_and_copied():
    module = linear()

    def fn(x):
        module.weight.data.add_(1)
        mine = copy.deepcopy(module)
        return mine(x), module(x), mine.weight

    return Scene(fn, one(ramp()), shifting(module), lambda: module.state_dict())


@probe("SB006")
def module_whose_data_is_set_copied():
    module = linear()

    def fn(x):
        module.weight.data = module.weight.data * 2
        mine = copy.deepcopy(module)
        return mine(x), module(x), mine.weight

    return Scene(fn, one(ramp()), shifting(module), lambda: module.state_dict())


@probe()
def copied_module_frozen():
    module = linear()

    def fn(x):
        mine = copy.deepcopy(module)
        for parameter in mine.parameters():
            parameter.requires_grad_(False)
        return mine(x), mine.weight.requires_grad, mine

    return Scene(fn, one(ramp()), shifting(module), lambda: module.state_dict())


@probe()
def copy_of_a_copy():
    module = linear()

    def fn(x):
        first = copy.deepcopy(module)
        second = copy.deepcopy(first)
        with torch.no_grad():
            second.weight.add_(1)
        return first(x), second(x), first.weight is second.weight

    return Scene(fn, one(ramp()), shifting(module), lambda: module.state_dict())


@probe("SB005")
def copy_of_a_copy_that_was_written():
    module = linear()

    def fn(x):
        first = copy.deepcopy(module)
        with torch.no_grad():
            first.weight.add_(1)
        second = copy.deepcopy(first)
        return first(x), second(x), first.weight is second.weight

    return Scene(fn, one(ramp()), shifting(module), lambda: module.state_dict())


@probe()
def copied_views_of_one_storage():
    base = torch.arange(12.0)
    pair = [base[2:6], base[4:8]]

    def fn(x):
        first, second = copy.deepcopy(pair)
        first.add_(x)
        return first, second, first.storage_offset(), pair

    return Scene(fn, one(ramp()), lambda: pair.__setitem__(1, torch.arange(16.0)[4:8]), lambda: (base, pair))


@probe()
def copied_view_beside_its_base():
    base = torch.arange(12.0)
    table = {"base": base, "view": base.view(3, 4).t()}

    def fn(x):
        mine = copy.deepcopy(table)
        mine["base"].add_(1)
        return mine["view"].sum() + x, mine

    return Scene(fn, one(ramp()), lambda: base.add_(1), lambda: table)


@probe()
def copied_parameter():
    weight = nn.Parameter(torch.ones(4))

    def fn(x):
        mine = copy.deepcopy([weight, weight])
        first = mine[0]
        return mine, first is mine[1], type(first), isinstance(first, nn.Parameter), first.is_leaf, first * x, first.grad

    return Scene(fn, one(ramp()), lambda: setattr(weight, "grad", torch.ones(4)), lambda: weight)


@probe()
def copied_parameter_that_is_frozen_later():
    weight = nn.Parameter(torch.ones(4))
    return Scene(lambda x: (copy.deepcopy(weight), x + 1), one(ramp()), lambda: weight.requires_grad_(False),
                 lambda: weight)


@probe()
def copied_leaf():
    weight = torch.ones(4, requires_grad=True)

    def fn(x):
        mine = copy.deepcopy(weight)
        return mine, mine * x, mine.grad

    return Scene(fn, one(ramp()), lambda: weight.requires_grad_(False), lambda: weight)


@probe("SB005")
def copied_leaf_that_comes_to_have_a_gradient():
    weight = torch.ones(4, requires_grad=True)

    def fn(x):
        mine = copy.deepcopy(weight)
        return mine, mine * x, mine.grad

    return Scene(fn, one(ramp()), lambda: setattr(weight, "grad", torch.ones(4)), lambda: weight)


@probe("SB005")
def copied_part_that_comes_to_have_a_gradient():
    part = torch.ones(8)[2:6].requires_grad_()
    return Scene(lambda x: (x + 1, copy.deepcopy(part).grad), one(ramp()),
                 lambda: setattr(part, "grad", torch.ones(4)), lambda: part)


@probe()
def copied_module_with_tied_weights():
    module = filled(nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}))
    module["b"].weight = module["a"].weight

    def fn(x):
        mine = copy.deepcopy(module)
        with torch.no_grad():
            mine["a"].weight.add_(1)
        return mine["b"](mine["a"](x)), mine["a"].weight is mine["b"].weight, mine

    return Scene(fn, one(ramp()), lambda: setattr(module["b"], "weight", nn.Parameter(torch.ones(4, 4))),
                 lambda: module)


@probe()
def layers_that_are_copies():
    module = linear()

    def fn(x):
        layers = nn.ModuleList([copy.deepcopy(module) for _ in range(3)])
        for layer in layers:
            x = layer(x)
        return x, layers

    return Scene(fn, one(ramp()), shifting(module), lambda: module)


@probe()
def arguments_named_as_the_residual_names_copies():
    module = linear()
    x = ramp()
    return Scene(lambda drawn, memo, deepcopy: copy.deepcopy(module)(drawn) + memo + deepcopy,
                 lambda: (x, x * 2, x * 3), shifting(module), lambda: module)


@probe()
def copied_module_with_a_buffer_and_a_hook():
    module = filled(nn.Linear(4, 4))
    module.register_buffer("scale", torch.full((4,), 2.0))
    module.register_forward_hook(lambda self, inputs, output: output * self.scale)

    def fn(x):
        mine = copy.deepcopy(module)
        mine.scale.add_(1)
        return mine(x), module(x), mine.scale

    return Scene(fn, one(ramp()), lambda: module.scale.add_(1), lambda: module.state_dict())


@probe("SB005 SB006")
def module_copied_in_inference_mode():
    module = linear()

    def fn(x):
        with torch.inference_mode():
            mine = copy.deepcopy(module)
        return mine.weight.is_inference(), mine(x)

    return Scene(fn, one(ramp()), shifting(module), lambda: module.state_dict())


@probe()
def module_copied_without_gradients():
    module = linear()

    def fn(x):
        with torch.no_grad():
            mine = copy.deepcopy(module)
        return mine.weight.requires_grad, mine(x)

    return Scene(fn, one(ramp()), shifting(module), lambda: module.state_dict())


class Config:
    """Copies itself, in its own way."""

    def __init__(self) -> None:
        self.weight, self.count = nn.Parameter(torch.ones(4)), 1

    def __deepcopy__(self, memo: Any) -> Any:
        memo[id(self)] = made = Config.__new__(Config)
        made.weight, made.count = copy.deepcopy(self.weight, memo), self.count + 1
        return made


@probe()
def copy_by_a_method_of_its_own():
    config = Config()

    def fn(x):
        first, second = copy.deepcopy([config, config])
        return first is second, first.weight * x, first.count, first.weight

    return Scene(fn, one(ramp()), lambda: setattr(config, "count", 5), lambda: vars(config))


@probe()
def copied_module_stored_outside():
    module, slot = linear(), {}

    def fn(x):
        slot["average"] = copy.deepcopy(module)
        return slot["average"](x)

    return Scene(fn, one(ramp()), shifting(module), lambda: (module, slot))


@probe()
def copied_state_of_an_optimiser():
    state = {"step": torch.tensor(3.0), "mean": torch.ones(2, 3).t(), "more": [torch.ones(3)[None].expand(2, 3)]}

    def fn(x):
        mine = copy.deepcopy(state)
        mine["step"].add_(1)
        return mine, x + 1

    return Scene(fn, one(ramp()), lambda: state["step"].add_(1), lambda: state)
