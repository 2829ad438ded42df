"""Ways to divide a model: sequence, context and pipeline parallelism, loss parallelism, two-dimensional meshes."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import (
    all_gather_tensor_autograd,
    reduce_scatter_tensor_autograd,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from tests.ranks.programs import built, program, values


class Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def feed() -> Feed:
    torch.manual_seed(0)
    return Feed()


def same(offset: float = 0.0) -> torch.Tensor:
    """Numbers that all ranks have."""
    return torch.arange(16.0).reshape(4, 4) / 8 + offset


# ---------------------------------------------------------------------- tensor and sequence parallelism


@built
def sequence_parallel_norm():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = parallelize_module(feed(), mesh, {
        "norm": SequenceParallel(sequence_dim=0), "up": ColwiseParallel(input_layouts=Shard(0)),
        "down": RowwiseParallel(output_layouts=Replicate())})

    def f(x):
        return model.down(F.gelu(model.up(model.norm(x)))) + 1
    return f, [(same(),), (same(1),)]


@built
def prepared_inputs_and_outputs():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.25)
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    parallelize_module(model, mesh, PrepareModuleInput(
        input_layouts=Shard(0), desired_input_layouts=Replicate(), use_local_output=True))
    parallelize_module(model, mesh, PrepareModuleOutput(
        output_layouts=Replicate(), desired_output_layouts=Shard(0), use_local_output=True))

    def f(x):
        return model(x) * 2
    return f, [(values(),), (values(offset=1),)]


@built(whole=False)
def loss_over_shards():
    """Cross entropy of logits that are divided over the vocabulary."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    head = parallelize_module(nn.Linear(4, 8), mesh, ColwiseParallel(use_local_output=False))
    target = torch.tensor([0, 3, 5, 7])

    def f(x):
        with loss_parallel():
            loss = F.cross_entropy(head(x), DTensor.from_local(target, mesh, [Replicate()]))
            loss.backward()
        grads = [p.grad.to_local().clone() for p in head.parameters()]
        head.zero_grad()
        return grads
    return f, [(same(),), (same(1),)]


@built
def two_dimensional_mesh():
    """Data parallelism over one dimension of a mesh, tensor parallelism over the other."""
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("data", "model"))
    model = parallelize_module(feed(), mesh["model"], {"up": ColwiseParallel(), "down": RowwiseParallel()})

    def f(x):
        y = model(x).square().mean()
        y = y.clone()
        dist.all_reduce(y, group=mesh.get_group("data"))
        return y / mesh["data"].size()
    return f, [(same(),), (same(1),)]


@program
def megatron_sequence_parallel(x):
    """Gather a sequence before a block and scatter sums behind it, with gradients both ways."""
    group = dist.group.WORLD
    whole = all_gather_tensor_autograd(x, 0, group)
    return reduce_scatter_tensor_autograd(F.gelu(whole @ whole.new_ones(4, 4)), "sum", 0, group) + x


# ---------------------------------------------------------------------- context parallelism


@program
def context_parallel_attention(x):
    """Each rank has queries of its part; keys and values are gathered; the mask depends on the rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    keys = torch.empty(size * 4, 4)
    dist.all_gather_into_tensor(keys, x)
    rows = torch.arange(4).unsqueeze(1) + rank * 4
    mask = rows >= torch.arange(size * 4)
    return F.scaled_dot_product_attention(x[None, None], keys[None, None], keys[None, None], attn_mask=mask)[0, 0]


@program
def ring_attention(x):
    """Keys and values go around; the sum of exponentials is kept beside the result."""
    rank, size = dist.get_rank(), dist.get_world_size()
    part, result, total = x.clone(), torch.zeros_like(x), torch.zeros(4, 1)
    for step in range(size):
        weights = (x @ part.t() / 100).exp()
        result, total = result + weights @ part, total + weights.sum(1, keepdim=True)
        if step + 1 < size:
            arrived = torch.empty_like(part)
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, part, (rank + 1) % size),
                                            dist.P2POp(dist.irecv, arrived, (rank - 1) % size)])
            for work in works:
                work.wait()
            part = arrived
    return result / total


# ---------------------------------------------------------------------- pipelines


@program
def pipeline_by_hand(x):
    """Activations go from rank to rank; the last result goes to all."""
    rank, size = dist.get_rank(), dist.get_world_size()
    y = x
    if rank > 0:
        y = torch.empty_like(x)
        dist.recv(y, rank - 1)
    y = F.gelu(y @ y.new_full((4, 4), 0.25)) + rank
    if rank + 1 < size:
        dist.send(y, rank + 1)
    dist.broadcast(y, size - 1)
    return y


@program
def pipeline_backward_by_hand(x):
    """Two stages with their gradients: the first half of the ranks feeds the second."""
    rank, half = dist.get_rank(), dist.get_world_size() // 2
    weight = torch.full((4, 4), 0.5, requires_grad=True)
    if rank < half:
        y = x @ weight
        dist.send(y.detach(), rank + half)
        grad = torch.empty_like(y)
        dist.recv(grad, rank + half)
        return torch.autograd.grad(y, weight, grad)[0]
    given = torch.empty(4, 4)
    dist.recv(given, rank - half)
    given.requires_grad_()
    loss = (given @ weight).square().mean()
    grads = torch.autograd.grad(loss, [weight, given])
    dist.send(grads[1], rank - half)
    return grads[0]


@built(whole=False)
def pipeline_schedule():
    """torch's own schedule; its stages are captured below it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    stage = PipelineStage(feed(), rank, size, torch.device("cpu"), input_args=(same()[:2],))
    schedule = ScheduleGPipe(stage, n_microbatches=2)

    def f(x):
        found = schedule.step(x) if rank == 0 else schedule.step()
        return found if rank + 1 == size else None
    return f, [(same(),)] * 2
