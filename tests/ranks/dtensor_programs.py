"""Operators of DTensor: pointwise, products, reductions, layouts, layers, gradients."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor

from tests.ranks.programs import built, values


def world():
    return init_device_mesh("cpu", (dist.get_world_size(),))


def on_shards(f, placement=None):
    """Calls of `f` with a DTensor over the local 4x4 tensors of all ranks; its result leaves as a plain tensor."""
    mesh = world()

    def g(x):
        return f(DTensor.from_local(x, mesh, [placement or Shard(0)]), mesh)
    return g, [(values(),), (values(offset=1),)]


@built
def dtensor_pointwise():
    return on_shards(lambda d, mesh: (d.relu() * 2 + d.sigmoid() - 1).to_local())


@built
def dtensor_with_number_and_scalar():
    return on_shards(lambda d, mesh: ((d + 1) / 2 ** 0.5).clamp(max=3).to_local())


@built
def dtensor_sum_over_shards():
    return on_shards(lambda d, mesh: d.sum(0).full_tensor() + d.mean().full_tensor())


@built
def dtensor_max_along_columns():
    return on_shards(lambda d, mesh: d.amax(1).full_tensor())


@built
def dtensor_softmax():
    return on_shards(lambda d, mesh: d.softmax(-1).to_local())


@built
def dtensor_layer_norm():
    return on_shards(lambda d, mesh: F.layer_norm(d, (4,)).full_tensor())


@built
def dtensor_transposed_product():
    return on_shards(lambda d, mesh: (d.t() @ d).full_tensor())


@built
def dtensor_view_and_transpose():
    return on_shards(lambda d, mesh: d.view(-1, 2, 2).transpose(1, 2).reshape(-1, 4).to_local())


@built
def dtensor_cat_and_split():
    return on_shards(lambda d, mesh: torch.cat(torch.cat([d, d * 2], 1).split(4, 1)[::-1], 1).to_local())


@built
def dtensor_to_other_shards():
    return on_shards(lambda d, mesh: d.redistribute(mesh, [Shard(1)]).to_local() * 2)


@built
def dtensor_replicated_to_shards():
    return on_shards(lambda d, mesh: d.redistribute(mesh, [Shard(0)]).to_local() + 1, Replicate())


@built
def dtensor_partial_to_shards():
    return on_shards(lambda d, mesh: d.redistribute(mesh, [Shard(0)]).to_local() + 1, Partial())


@built
def dtensor_facts():
    """Shapes, placements and meshes of a DTensor are constants."""
    def f(d, mesh):
        local = d.to_local()
        if d.placements[0].is_shard() and d.device_mesh is mesh:
            local = local * d.shape[0] + d.size(1)
        return local
    return on_shards(f)


@built
def dtensor_gradients():
    mesh = world()

    def f(x):
        d = DTensor.from_local(x, mesh, [Shard(0)])
        return torch.autograd.grad((d * d).sum().full_tensor(), x)[0]
    return f, [(values().requires_grad_(),), (values(offset=1).requires_grad_(),)]


@built(quick=True)
def dtensor_parameters():
    """A product with parameters that are DTensors of the closure."""
    mesh = world()
    torch.manual_seed(0)
    weight = torch.nn.Parameter(distribute_tensor(torch.randn(4, 4), mesh, [Shard(0)]))

    def f(x):
        d = DTensor.from_local(x, mesh, [Replicate()])
        return F.linear(d, weight).full_tensor() + 1
    x = torch.arange(16.0).reshape(4, 4)
    return f, [(x,), (x + 1,)]


@built
def dtensor_module():
    torch.manual_seed(0)
    mesh = world()
    module = distribute_module(torch.nn.Linear(4, 4), mesh)

    def f(x):
        return module(DTensor.from_local(x, mesh, [Replicate()])).to_local()
    x = torch.arange(16.0).reshape(4, 4)
    return f, [(x,), (x + 1,)]


@built(whole=False)
def dtensor_written_in_place():
    mesh = world()

    def inputs(offset):
        return lambda: ((distribute_tensor(torch.arange(16.0).reshape(4, 4) + offset, mesh, [Shard(0)]),), {})

    def f(x):
        x.mul_(2)
        return x.full_tensor()
    return f, [inputs(0), inputs(1)]
