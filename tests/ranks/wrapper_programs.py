"""Modules wrapped by torch: DDP, FSDP, tensor parallelism, DTensor, ZeRO, SyncBatchNorm."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed._composable.replicate import replicate
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from tests.ranks.programs import built, program, values


def mlp() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))


def trained(model):
    """Three steps of gradient descent."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    def f(x):
        loss = model(x).square().mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss.detach()
    return f, [(values(),)] * 3


# ---------------------------------------------------------------------- DDP


@built(quick=True, whole=False)
def ddp_forward():
    model = DistributedDataParallel(mlp())
    return model, [(values(),), (values(offset=1),)]


@built(whole=False)
def ddp_step():
    return trained(DistributedDataParallel(mlp()))


@built(whole=False)
def ddp_no_sync():
    model = DistributedDataParallel(mlp())

    def f(x):
        with model.no_sync():
            model(x).square().mean().backward()
        model(x.sin()).square().mean().backward()
        grads = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        return grads
    return f, [(values(),)] * 2


@built(whole=False)
def ddp_static_graph():
    model = DistributedDataParallel(mlp(), static_graph=True)
    return model, [(values(),)] * 2


@built(whole=False)
def ddp_unused():
    model = DistributedDataParallel(mlp(), find_unused_parameters=True)
    return model, [(values(),)] * 2


@built(whole=False)
def ddp_buffers():
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
    return model, [(values(),)] * 2


@built(quick=True, whole=False)
def ddp_in_buckets():
    """Five buckets: graphs of compilers are cut where they end."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 8), *[torch.nn.Linear(8, 8) for _ in range(3)], torch.nn.Linear(8, 4)]
    return trained(DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.0002))


@built(whole=False)
def ddp_views_of_buckets():
    return trained(DistributedDataParallel(mlp(), gradient_as_bucket_view=True))


@built(whole=False)
def ddp_compressed():
    model = DistributedDataParallel(mlp())
    model.register_comm_hook(None, fp16_compress_hook)
    return trained(model)


@built(whole=False)
def ddp_uneven_inputs():
    """Ranks that have run out of inputs join those that have not."""
    model = DistributedDataParallel(mlp())

    def f(x):
        losses = []
        with model.join():
            for step in range(2 + dist.get_rank()):
                loss = model(x + step).square().mean()
                loss.backward()
                losses.append(loss.detach())
        found = losses, [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        return found
    return f, [(values(),), (values(offset=1),)]


@built(whole=False)
def ddp_all_settings():
    return trained(DistributedDataParallel(mlp(), static_graph=True, gradient_as_bucket_view=True, bucket_cap_mb=0.0001))


@built(whole=False)
def ddp_two_modules():
    """Two wrapped modules in one function."""
    first, second = DistributedDataParallel(mlp()), DistributedDataParallel(mlp())

    def f(x):
        return second(first(x)).sum()
    return f, [(values(),)] * 2


@built(whole=False)
def ddp_tied_weights():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return trained(DistributedDataParallel(model, bucket_cap_mb=0.00001))


# ---------------------------------------------------------------------- FSDP


@built(whole=False)
def fsdp2_forward():
    model = mlp()
    fully_shard(model[0])
    fully_shard(model[2])
    fully_shard(model)
    return model, [(values(),)] * 2


@built(whole=False)
def fsdp2_step():
    model = mlp()
    fully_shard(model)
    return trained(model)


@built(whole=False)
def fsdp1_forward():
    model = FullyShardedDataParallel(mlp(), device_id=torch.device("cpu"), use_orig_params=True)
    return model, [(values(),)] * 2


@built(whole=False)
def fsdp1_step():
    return trained(FullyShardedDataParallel(mlp(), device_id=torch.device("cpu"), use_orig_params=True))


@built(whole=False)
def fsdp2_checkpointed():
    """Activation checkpoints inside sharded modules."""
    model = mlp()
    for place in (0, 2):
        model[place] = checkpoint_wrapper(model[place])
        fully_shard(model[place])
    return trained(fully_shard(model))


@built(whole=False, tolerance=1e-2)  # of bfloat16
def fsdp2_mixed_precision():
    model = mlp()
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    return trained(model)


@built(whole=False)
def fsdp2_kept_unsharded():
    model = mlp()
    fully_shard(model, reshard_after_forward=False)
    return trained(model)


@built(whole=False)
def fsdp2_and_tensor_parallel():
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("data", "model"))
    model = parallelize_module(mlp(), mesh["model"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])

    def f(x):
        return model(x) + 1
    x = torch.arange(16.0).reshape(4, 4) / 8
    return f, [(x,), (x + 1,)]


@built(whole=False)
def replicated_module():
    """torch's composable form of DDP."""
    return trained(replicate(mlp()))


# ---------------------------------------------------------------------- DTensor


@built
def dtensor_redistributed():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    def f(x):
        return DTensor.from_local(x, mesh, [Shard(0)]).redistribute(mesh, [Replicate()]).to_local() + 1
    return f, [(values(),), (values(offset=1),)]


@built
def dtensor_matmul():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    def f(x):
        a = DTensor.from_local(x, mesh, [Shard(0)])
        b = DTensor.from_local(x.new_ones(4, 4), mesh, [Replicate()])
        return (a @ b).full_tensor()
    return f, [(values(),), (values(offset=1),)]


@built
def dtensor_partial():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    def f(x):
        return DTensor.from_local(x * 2, mesh, [Partial()]).full_tensor() + 1
    return f, [(values(),), (values(offset=1),)]


@built
def dtensor_input():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    def inputs(offset):
        return lambda: ((distribute_tensor(torch.arange(16.0).reshape(4, 4) + offset, mesh, [Shard(0)]),), {})

    def f(x):
        return (x * 2 + 1).sum(0).full_tensor()
    return f, [inputs(0), inputs(1)]


@built
def tensor_parallel_mlp():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = parallelize_module(mlp(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.arange(16.0).reshape(4, 4) / 8

    def f(x):
        return model(x) + 1  # it waits for the last collective
    return f, [(x,), (x + 1,)]


@built
def tensor_parallel_gradients():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = parallelize_module(mlp(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.arange(16.0).reshape(4, 4) / 8

    def f(x):
        loss = model(x).square().mean()
        return loss, [g.to_local() for g in torch.autograd.grad(loss, list(model.parameters()))]
    return f, [(x,), (x + 1,)]


# ---------------------------------------------------------------------- others


@built(whole=False)
def sync_batch_norm_module():
    torch.manual_seed(0)
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(torch.nn.Linear(4, 4),
                                                                             torch.nn.BatchNorm1d(4))).eval()
    return model, [(values(),)] * 2


@built(whole=False)
def zero_optimiser():
    model = mlp()
    optimiser = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)

    def f(x):
        loss = model(x).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimiser.step()
        optimiser.zero_grad()
        return loss.detach()
    return f, [(values(),)] * 2


@program
def constants_of_placements(x):
    shard, replicate = Shard(0), Replicate()
    return x + shard.dim + (shard == Shard(0)) + replicate.is_replicate()
