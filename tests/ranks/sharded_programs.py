"""Modules sharded by fully_shard, whose hooks are nodes of the graph."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

import stator
from tests.ranks.programs import built, values


class Block(torch.nn.Module):
    """Takes and returns tensors in several ways."""

    def __init__(self, way: str = "plain") -> None:
        super().__init__()
        self.way, self.first, self.second = way, torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    def forward(self, x, scale=None, extra=()):
        y = self.second(self.first(x).relu())
        if self.way == "break":
            stator.graph_break()
            y = y + self.second.bias
        if self.way == "raise" and isinstance(scale, float):
            raise ValueError(f"no scale {scale}")
        y = y if scale is None else y * scale
        for each in extra:
            y = y + each
        return {"y": y, "sum": y.sum(), "n": 3} if self.way == "dict" else (y, None) if self.way == "tuple" else y


class Model(torch.nn.Module):
    def __init__(self, way: str = "plain", forward=None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = torch.nn.ModuleList(Block(way) for _ in range(2))
        self.head, self.run = torch.nn.Linear(4, 4), forward

    def forward(self, x, *rest, **more):
        for block in self.blocks:
            x = self.run(block, x) if self.run is not None else block(x, *rest, **more)
        return self.head(x) if isinstance(x, torch.Tensor) else x


def sharded(model, **settings):
    for block in model.blocks:
        fully_shard(block, **settings)
    return fully_shard(model)


def gradients(model, made):
    made.square().mean().backward()
    found = [None if p.grad is None else p.grad.to_local().clone() for p in model.parameters()]
    model.zero_grad()
    return found


@stator.disable
def behind(model, made):
    return made.detach().clone(), gradients(model, made)


def trains(model):
    """Forward captured, backward native, three times."""
    def f(x):
        return behind(model, model(x))
    return f, [(values(),), (values(offset=1),), (values(),)]


@built(whole=False, quick=True)
def sharded_blocks():
    return trains(sharded(Model()))


@built(whole=False)
def sharded_blocks_kept_whole():
    return trains(sharded(Model(), reshard_after_forward=False))


@built(whole=False)
def sharded_with_keywords():
    model = sharded(Model())
    weight = torch.nn.Parameter(torch.full((4, 4), 0.5))

    def f(x, scale):
        made = model(x, scale=weight * scale, extra=(x, 1.0))
        found = behind(model, made), weight.grad
        weight.grad = None
        return found
    return f, [(values(), 2.0), (values(offset=1), 2.0)]


@built(whole=False)
def sharded_returns_dict():
    model = sharded(Model("dict"))
    model.blocks = model.blocks[:1]

    def f(x):
        made = model.blocks[0](x)
        return behind(model.blocks[0], made["y"]), made["sum"].detach(), made["n"]
    return f, [(values(),), (values(offset=1),)]


@built(whole=False)
def sharded_returns_tuple():
    model = sharded(Model("tuple"))

    def f(x):
        made, nothing = model.blocks[1](x)
        return behind(model.blocks[1], made), nothing
    return f, [(values(),), (values(offset=1),)]


@built(whole=False)
def sharded_with_break_inside():
    return trains(sharded(Model("break")))


@built(whole=False)
def sharded_frozen_later():
    model = sharded(Model())
    seen: list[int] = []

    def f(x):
        return behind(model, model(x))

    def call(count):
        def make():
            seen.append(count)
            for p in model.blocks[0].parameters():
                p.requires_grad_(count % 2 == 0)
            return (values(),), {}
        return make
    return f, [call(0), call(1), call(2), call(3)]


@built(whole=False)
def sharded_in_and_out_of_training():
    model = sharded(Model())

    def f(x, training):
        with torch.set_grad_enabled(training):
            made = model(x)
        return behind(model, made) if training else made
    return f, [(values(), True), (values(), False), (values(), False), (values(), True)]


@built(whole=False)
def sharded_and_checkpointed_outside():
    def run(block, x):
        return checkpoint(block, x, use_reentrant=False)
    return trains(sharded(Model(forward=run)))


@built(whole=False)
def sharded_weight_read_outside():
    """The root reads a parameter of a block behind the block's forward()."""
    def run(block, x):
        y = block(x)
        return y * len(block.second.bias.shape) + block.second.weight.requires_grad
    return trains(sharded(Model(forward=run)))


@built(whole=False)
def sharded_raises():
    model = sharded(Model("raise"))

    def f(x, scale):
        try:
            return behind(model, model(x, scale))
        except ValueError as error:
            return str(error)
    return f, [(values(), None), (values(), 3.0)]


@built(whole=False)
def sharded_accumulates():
    model = sharded(Model())

    def f(x):
        model.set_requires_gradient_sync(False)
        backward(model(x))
        model.set_requires_gradient_sync(True)
        return behind(model, model(x.cos()))

    @stator.disable
    def backward(made):
        made.square().mean().backward()
    return f, [(values(),), (values(offset=1),)]


@built(whole=False)
def sharded_called_twice():
    """One module, two calls before the backward pass."""
    model = sharded(Model())

    def f(x):
        return behind(model, model(x) + model(x.sin()))
    return f, [(values(),), (values(offset=1),)]


@built(whole=False)
def sharded_state_behind_compile():
    model = sharded(Model())

    def f(x):
        made = behind(model, model(x))
        return made, read()

    @stator.disable
    def read():
        return {name: value.to_local().clone() for name, value in model.state_dict().items()}
    return f, [(values(),), (values(offset=1),)]


@built(whole=False)
def sharded_with_collectives_inside():
    def run(block, x):
        y = block(x)
        total = y.detach().sum()
        dist.all_reduce(total)
        return y + total
    return trains(sharded(Model(forward=run)))
