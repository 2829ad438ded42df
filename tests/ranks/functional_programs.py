"""Functional collectives, meshes and Megatron-style layers."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

from tests.ranks.programs import built, program, values

# ---------------------------------------------------------------------- functional collectives


@program(quick=True)
def functional_all_reduce(x):
    return funcol.all_reduce(x * 2, "sum", dist.group.WORLD) + 1


@program
def functional_all_reduce_name(x):
    return funcol.all_reduce(x * 2, "avg" if False else "max", dist.group.WORLD.group_name) + 1


@program
def functional_gather_by_name(x):
    return funcol.all_gather_tensor(x * 2, gather_dim=0, group=dist.group.WORLD.group_name) + 1


@built(whole=False)
def functional_group_of_another_size():
    """The name stays, and the group behind it is another one."""
    name = dist.group.WORLD.group_name

    def f(x):
        return funcol.all_gather_tensor(x * 2, gather_dim=0, group=name) + 1

    def called(x, alone):
        if not alone:
            return f(x)
        world, own = dist.group.WORLD, [dist.new_group([rank]) for rank in range(dist.get_world_size())]
        mine = own[dist.get_rank()]
        names = dist.distributed_c10d._world.pg_names
        torch._C._distributed_c10d._unregister_process_group(name)
        torch._C._distributed_c10d._register_process_group(name, mine)
        before = dict(names)
        names.pop(world), names.update({mine: name})
        try:
            return f(x)
        finally:
            names.clear(), names.update(before)
            torch._C._distributed_c10d._unregister_process_group(name)
            torch._C._distributed_c10d._register_process_group(name, world)
            dist.barrier()
    return called, [(values(), False), (values(), True), (values(offset=1), False)]


@program
def functional_all_gather(x):
    return funcol.all_gather_tensor(x * 2, gather_dim=1, group=dist.group.WORLD) + 1


@program
def functional_reduce_scatter(x):
    return funcol.reduce_scatter_tensor(x * 2, "sum", scatter_dim=0, group=dist.group.WORLD) + 1


@program
def functional_all_to_all(x):
    return funcol.all_to_all_single(x * 2, None, None, dist.group.WORLD) + 1


@program
def functional_broadcast(x):
    return funcol.broadcast(x * 2, 1, dist.group.WORLD) + 1


@program
def functional_waited(x):
    y = funcol.all_reduce(x * 2, "sum", dist.group.WORLD)
    z = x.sin()
    y = funcol.wait_tensor(y)
    return y + z


@program
def functional_coalesced(x):
    y, z = funcol.all_reduce_coalesced([x * 2, x.sin()], "sum", dist.group.WORLD)
    return y + z


@built(quick=True)
def functional_with_mesh():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    def f(x):
        return funcol.all_reduce(x * 2, "sum", mesh) + 1
    return f, [(values(),), (values(offset=1),)]


@built
def functional_with_mesh_and_dim():
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "model"))

    def f(x):
        return funcol.all_reduce(x * 2, "sum", (mesh, 1)) + funcol.all_reduce(x, "sum", (mesh, 0))
    return f, [(values(),), (values(offset=1),)]


@program(grad=True)
def functional_autograd(x):
    y = funcol.all_gather_tensor_autograd(x * 2, gather_dim=0, group=dist.group.WORLD)
    return (y * y).sum()


@program(grad=True)
def functional_autograd_scatter(x):
    y = funcol.reduce_scatter_tensor_autograd(x * 2, "sum", scatter_dim=0, group=dist.group.WORLD)
    return (y * y).sum()


@program(grad=True)
def functional_autograd_all_to_all(x):
    y = funcol.all_to_all_single_autograd(x * 2, None, None, dist.group.WORLD)
    return (y * y).sum()


@program(grad=True)
def functional_autograd_all_reduce(x):
    y = funcol.all_reduce(x * 2, "sum", dist.group.WORLD)
    return (y * y).sum()


@program(grad=True)
def distributed_nn_all_reduce(x):
    y = torch.distributed.nn.functional.all_reduce(x * 2)
    return (y * y).sum()


@program(grad=True)
def distributed_nn_all_gather(x):
    y = torch.cat(torch.distributed.nn.functional.all_gather(x * 2))
    return (y * y).sum()


@program
def raw_operator(x):
    y = torch.ops._c10d_functional.all_reduce(x * 2, "sum", dist.group.WORLD.group_name)
    return torch.ops._c10d_functional.wait_tensor(y) + 1


# ---------------------------------------------------------------------- meshes


@built
def methods_of_mesh():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("model",))

    def f(x):
        return x * mesh.get_local_rank() + mesh.size() + mesh.ndim
    return f, [(values(),), (values(offset=1),)]


@built
def group_of_mesh():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("model",))

    def f(x):
        y = x * 2
        dist.all_reduce(y, group=mesh.get_group())
        return y + mesh.get_rank()
    return f, [(values(),), (values(offset=1),)]


@built
def part_of_mesh():
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "model"))

    def f(x):
        y = x * 2
        dist.all_reduce(y, group=mesh["model"].get_group())
        dist.all_reduce(y, group=mesh.get_group("data"))
        return y + mesh["model"].size()
    return f, [(values(),), (values(offset=1),)]


@built
def coordinate_of_mesh():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("model",))

    def f(x):
        return x + mesh.get_coordinate()[0] + mesh.shape[0]
    return f, [(values(),), (values(offset=1),)]


# ---------------------------------------------------------------------- Megatron


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ReduceInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=-1)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(dist.get_world_size(ctx.group), dim=-1)[dist.get_rank(ctx.group)].contiguous(), None


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.chunk(dist.get_world_size(group), dim=-1)[dist.get_rank(group)].contiguous()

    @staticmethod
    def backward(ctx, grad):
        parts = [torch.empty_like(grad) for _ in range(dist.get_world_size(ctx.group))]
        dist.all_gather(parts, grad.contiguous(), group=ctx.group)
        return torch.cat(parts, dim=-1), None


@program(grad=True, quick=True)
def megatron_reduce(x):
    return Reduce.apply(x * 2, dist.group.WORLD).sum()


@program(grad=True)
def megatron_copy(x):
    return (Copy.apply(x * 2, dist.group.WORLD) ** 2).sum()


@program(grad=True)
def megatron_reduce_in_place(x):
    return (ReduceInPlace.apply(x * 2, dist.group.WORLD) ** 2).sum()


@program(grad=True)
def megatron_gather(x):
    return (Gather.apply(x * 2, dist.group.WORLD) ** 2).sum()


@program(grad=True)
def megatron_scatter(x):
    return (Scatter.apply(x * 2, dist.group.WORLD) ** 2).sum()


class ColumnParallel(torch.nn.Module):
    def __init__(self, inputs, outputs, group):
        super().__init__()
        self.group = group
        self.weight = torch.nn.Parameter(torch.randn(outputs // dist.get_world_size(group), inputs) / 4)

    def forward(self, x):
        return F.linear(Copy.apply(x, self.group), self.weight)


class RowParallel(torch.nn.Module):
    def __init__(self, inputs, outputs, group):
        super().__init__()
        self.group = group
        self.weight = torch.nn.Parameter(torch.randn(outputs, inputs // dist.get_world_size(group)) / 4)

    def forward(self, x):
        return Reduce.apply(F.linear(x, self.weight), self.group)


@built
def megatron_mlp():
    torch.manual_seed(dist.get_rank())
    group = dist.group.WORLD
    model = torch.nn.Sequential(ColumnParallel(4, 8, group), torch.nn.GELU(), RowParallel(8, 4, group))

    def f(x):
        loss = model(x).square().mean()
        return loss, torch.autograd.grad(loss, list(model.parameters()))
    return f, [(values(),), (values(offset=1),)]


@built
def vocabulary_parallel_loss():
    def f(logits, target):
        with torch.no_grad():
            largest = logits.max(dim=-1).values
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        logits = logits - largest[:, None]
        rank, size = dist.get_rank(), logits.shape[-1]
        mine = (target >= rank * size) & (target < (rank + 1) * size)
        local = torch.where(mine, target - rank * size, 0)
        chosen = torch.where(mine, logits.gather(1, local[:, None])[:, 0], 0.0)
        total = logits.exp().sum(-1)
        dist.all_reduce(chosen)
        dist.all_reduce(total)
        return (total.log() - chosen).mean()
    return f, [(values().sin(), torch.tensor([0, 3, 5, 7])), (values(offset=1).sin(), torch.tensor([1, 2, 4, 6]))]


@program
def sequence_parallel(x):
    full = x.new_empty(x.shape[0] * 2, x.shape[1])
    dist.all_gather_into_tensor(full, x)
    y = F.layer_norm(full, (4,)) @ torch.ones(4, 4)
    out = torch.empty_like(x)
    dist.reduce_scatter_tensor(out, y)
    return out


@program
def expert_parallel(x):
    sent = x.sin()
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    worked = received * (dist.get_rank() + 1)
    back = torch.empty_like(worked)
    dist.all_to_all_single(back, worked)
    return back + x


@program(whole=False, pair=True)
def expert_parallel_uneven(x):
    counts = torch.tensor([1, 3] if dist.get_rank() == 0 else [2, 2])
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    out = x.new_empty(int(theirs.sum()), 4)
    dist.all_to_all_single(out, x, theirs.tolist(), counts.tolist())
    return out * 2


@program
def ulysses_attention(x):
    heads = x.view(4, 2, 2)
    out = torch.empty_like(heads)
    dist.all_to_all_single(out, heads.contiguous())
    attended = F.scaled_dot_product_attention(out, out, out)
    back = torch.empty_like(attended)
    dist.all_to_all_single(back, attended.contiguous())
    return back.reshape(4, 4)


@built(quick=True)
def synchronised_batch_norm():
    def f(x):
        mean, square = x.mean(0), x.square().mean(0)
        both = torch.cat([mean, square])
        dist.all_reduce(both)
        mean, square = (both / dist.get_world_size()).chunk(2)
        return (x - mean) * torch.rsqrt(square - mean * mean + 1e-5)
    return f, [(values(),), (values(offset=1),)]


@program
def moving_average(x):
    state = x.clone()
    for decay in (0.9, 0.99):
        y = x.mean(0)
        dist.all_reduce(y)
        state.mul_(decay).add_(y, alpha=1 - decay)
    return state
