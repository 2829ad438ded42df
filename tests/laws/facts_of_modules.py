"""Probes: parameters, buffers and hooks of modules, each changed between calls."""

from __future__ import annotations

from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import linear, one
from torch import nn


@probe()
def parameter_replaced():
    model = linear()
    return Scene(lambda x: model(x), one(ramp()), lambda: setattr(model, "weight", nn.Parameter(torch.ones(4, 4))))


@probe()
def parameter_of_another_shape():
    model = linear()
    def change():
        model.weight, model.bias = nn.Parameter(torch.ones(2, 4)), nn.Parameter(torch.ones(2))
    return Scene(lambda x: model(x), one(ramp()), change)


@probe()
def requires_grad_flipped():
    model = linear()
    return Scene(lambda x: model(x), one(ramp()), lambda: model.requires_grad_(False))


@probe()
def branch_on_requires_grad():
    x = ramp()
    return Scene(lambda x: x * 2 if x.requires_grad else x * 3, one(x), lambda: x.requires_grad_(True))


@probe()
def data_swapped():
    model = linear()
    return Scene(lambda x: model(x), one(ramp()), lambda: setattr(model.weight, "data", torch.ones(4, 4)))


@probe()
def data_swapped_for_another_shape():
    model = linear()
    def change():
        model.weight.data, model.bias.data = torch.ones(3, 4), torch.ones(3)
    return Scene(lambda x: model(x), one(ramp()), change)


@probe()
def buffer_resized():
    model = nn.Module()
    model.register_buffer("scale", torch.ones(4))
    return Scene(lambda x: x * model.scale, one(ramp()), lambda: setattr(model, "scale", torch.full((2, 4), 3.0)))


@probe()
def buffer_that_decides():
    model = nn.Module()
    model.register_buffer("ready", torch.tensor(0))
    return Scene(lambda x: x * 2 if model.ready else x * 3, one(ramp()), lambda: model.ready.fill_(1))


@probe()
def grid_that_decides():
    grid = torch.tensor([[2, 4], [4, 2]])
    def reshape(x):
        return [x.flatten()[: h * w].view(h, w) + 1 if h > 2 else x * w for h, w in grid.tolist()]
    return Scene(reshape, one(torch.arange(16.0)), lambda: grid.t_())


@probe()
def buffer_resized_in_place():
    model = nn.Module()
    model.register_buffer("scale", torch.ones(4))
    return Scene(lambda x: x * model.scale.sum(), one(ramp()), lambda: model.scale.resize_(2).fill_(3))


@probe()
def buffer_updated():
    model = nn.BatchNorm1d(4)
    x = ramp(8).reshape(2, 4)
    return Scene(lambda x: model(x), one(x), lambda: model.eval(), lambda: dict(model.named_buffers()))


@probe()
def forward_hook_added_later():
    model = linear()
    return Scene(lambda x: model(x), one(ramp()), lambda: model.register_forward_hook(lambda m, i, o: o * 10))


@probe()
def forward_pre_hook_added_later():
    model = nn.Sequential(linear())
    return Scene(lambda x: model(x), one(ramp()), lambda: model[0].register_forward_pre_hook(lambda m, i: (i[0] * 10,)))


@probe()
def hook_removed():
    model = linear()
    handle = model.register_forward_hook(lambda m, i, o: o * 10)
    return Scene(lambda x: model(x), one(ramp()), handle.remove)


@probe()
def global_forward_hook_added_later():
    model = linear()
    handles: list[Any] = []
    register = nn.modules.module.register_module_forward_hook
    return Scene(lambda x: model(x), one(ramp()), lambda: handles.append(register(lambda m, i, o: o * 10)),
                 undo=lambda: [handle.remove() for handle in handles])


@probe()
def global_forward_pre_hook_added_later():
    model = linear()
    handles: list[Any] = []
    register = nn.modules.module.register_module_forward_pre_hook
    return Scene(lambda x: model(x), one(ramp()), lambda: handles.append(register(lambda m, i: (i[0] * 10,))),
                 undo=lambda: [handle.remove() for handle in handles])


@probe()
def hook_that_notes():
    model = linear()
    seen: list[Any] = []
    model.register_forward_hook(lambda m, i, o: seen.append(tuple(o.shape)))
    return Scene(lambda x: model(x), one(ramp()), lambda: seen.append("changed"), lambda: seen)
