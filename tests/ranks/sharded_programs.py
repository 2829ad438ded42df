"""Modules sharded by fully_shard, whose hooks are nodes of the graph."""

from __future__ import annotations

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
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


@built(whole=False)
def sharded_over_two_dimensions():
    """Hybrid sharding: parameters are sharded over one dimension of a mesh, and replicated over the other."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("copies", "parts"))
    return trains(sharded(Model(), mesh=mesh))


@built(whole=False)
def distributed_checkpoint_behind_compile():
    """Save a trained model, change it, and load it again, with a compiled module in between."""
    model = sharded(Model())
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)

    def f(x):
        made = model(x)
        return step(made)

    @stator.disable
    def step(made):
        made.square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
        folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(folder, 0)
        model_state, optimiser_state = get_state_dict(model, optimiser)
        dcp.save({"model": model_state, "optimiser": optimiser_state}, checkpoint_id=folder[0])
        before = [p.to_local().clone() for p in model.parameters()]
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        model_state, optimiser_state = get_state_dict(model, optimiser)
        dcp.load({"model": model_state, "optimiser": optimiser_state}, checkpoint_id=folder[0])
        set_state_dict(model, optimiser, model_state_dict=model_state, optim_state_dict=optimiser_state)
        return before, [p.to_local().clone() for p in model.parameters()], made.detach()
    return f, [(values(),), (values(offset=1),)]


@built(whole=False, tolerance=1e-2)  # of bfloat16
def sharded_in_bfloat16():
    return trains(sharded(Model(), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)))


@built(whole=False, tolerance=1e-2)
def sharded_in_bfloat16_with_keywords():
    model = sharded(Model(), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False))

    def f(x, index):
        made = model.blocks[0](x.bfloat16(), scale=x.detach().bfloat16())
        return behind(model.blocks[0], made + index)
    return f, [(values(), torch.tensor([1, 2, 3, 0])), (values(offset=1), torch.tensor([0, 2, 3, 0]))]


@built(whole=False, tolerance=1e-2)
def sharded_casts_arguments():
    model = sharded(Model(), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))

    def f(x, index):
        x = x.clone().requires_grad_()
        made = model.blocks[0](x, scale=index)
        return behind(model.blocks[0], made), x.grad, made.dtype
    return f, [(values(), torch.tensor([1, 2, 3, 0])), (values(offset=1), torch.tensor([0, 2, 3, 0]))]
