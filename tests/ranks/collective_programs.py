"""Collectives of torch.distributed in plain functions."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tests.ranks.programs import built, program, values

WORLD = 2


# ---------------------------------------------------------------------- all_reduce


@program(quick=True)
def all_reduce_plain(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


@program(quick=True)
def all_reduce_input(x):
    dist.all_reduce(x)
    return x + 1


@program
def all_reduce_max(x):
    y = x.sin()
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    return y


@program
def all_reduce_min_prod(x):
    y, z = x.sin(), x.cos()
    dist.all_reduce(y, dist.ReduceOp.MIN)
    dist.all_reduce(z, op=dist.ReduceOp.PRODUCT)
    return y + z


@program
def all_reduce_integers(x):
    n = (x > 2).sum()
    dist.all_reduce(n)
    return x * n


@program
def all_reduce_bits(x):
    n = x.int()
    dist.all_reduce(n, op=dist.ReduceOp.BOR)
    return n


@program
def all_reduce_view(x):
    y = x.clone()
    dist.all_reduce(y[1])
    return y


@program
def all_reduce_transposed(x):
    y = (x * 2).t().contiguous()
    dist.all_reduce(y)
    return y.t()


@program
def all_reduce_twice(x):
    y = x * 2
    dist.all_reduce(y)
    y = y / dist.get_world_size()
    dist.all_reduce(y)
    return y


@program
def all_reduce_loop(x):
    total = torch.zeros_like(x)
    for i in range(4):
        y = x * i
        dist.all_reduce(y)
        total = total + y
    return total


@program(quick=True)
def all_reduce_async(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x.sin()
    work.wait()
    return y + z


@program
def all_reduce_async_list(x):
    parts = [x * i for i in range(3)]
    works = [dist.all_reduce(part, async_op=True) for part in parts]
    for work in works:
        work.wait()
    return sum(parts)


@program
def all_reduce_async_two(x):
    y, z = x * 2, x * 3
    first = dist.all_reduce(y, async_op=True)
    second = dist.all_reduce(z, async_op=True)
    second.wait()
    first.wait()
    return y - z


@program(whole=False)
def all_reduce_async_over_break(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    print("between", work is not None)
    work.wait()
    return y + 1


@program
def all_reduce_completed(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    return y, work.is_completed()


@built
def all_reduce_in_group():
    group = dist.group.WORLD

    def f(x):
        y = x * 2
        dist.all_reduce(y, group=group)
        return y + 1
    return f, [(values(),), (values(offset=1),)]


@built(quick=True)
def all_reduce_new_group():
    group = dist.new_group([0, 1])

    def f(x):
        y = x * 2
        dist.all_reduce(y, group=group)
        return y + 1
    return f, [(values(),), (values(offset=1),)]


@built
def group_as_argument():
    def f(x, group):
        y = x * 2
        dist.all_reduce(y, group=group)
        return y / dist.get_world_size(group)
    group = dist.new_group([0, 1])
    return f, [lambda: ((values(), group), {}), lambda: ((values(offset=1), group), {})]


@built
def group_of_one():
    groups = [dist.new_group([rank]) for rank in range(WORLD)]

    def f(x):
        y = x * 2
        dist.all_reduce(y, group=groups[dist.get_rank()])
        return y + 1
    return f, [(values(),), (values(offset=1),)]


@built
def group_of_others():
    groups = [dist.new_group([rank]) for rank in range(WORLD)]

    def f(x):
        y = x * 2
        dist.all_reduce(y, group=groups[0])
        return y + 1
    return f, [(values(),), (values(offset=1),)]


@program
def all_reduce_coalesced(x):
    y, z = x * 2, x * 3
    dist.all_reduce_coalesced([y, z])
    return y - z


@program
def all_reduce_complex(x):
    y = torch.complex(x, x * 2)
    dist.all_reduce(y)
    return torch.view_as_real(y)


@program
def all_reduce_scalar(x):
    loss = x.mean()
    dist.all_reduce(loss)
    return loss / dist.get_world_size()


@program
def all_reduce_of_item(x):
    count = torch.tensor(float(x.shape[0]))
    dist.all_reduce(count)
    return x / count


@program(whole=False)
def all_reduce_item(x):
    loss = x.mean()
    dist.all_reduce(loss)
    return x * loss.item()


@program
def all_reduce_no_grad(x):
    with torch.no_grad():
        y = x * 2
        dist.all_reduce(y)
    return y + 1


@program(grad=True)
def all_reduce_detached(x):
    loss = (x * 2).sum()
    shown = loss.detach().clone()
    dist.all_reduce(shown)
    return loss, shown


@built
def all_reduce_dynamic():
    def f(x):
        y = x * 2
        dist.all_reduce(y)
        return y.sum() + x.shape[0]
    return f, [(values(n, 4),) for n in (2, 3, 5)]


# ---------------------------------------------------------------------- all_gather


@program(quick=True)
def all_gather_list(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.cat(parts)


@program
def all_gather_async(x):
    parts = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
    work = dist.all_gather(parts, x * 2, async_op=True)
    y = x.sin()
    work.wait()
    return torch.stack(parts), y


@program(quick=True)
def all_gather_into_tensor(x):
    out = torch.empty(dist.get_world_size() * x.shape[0], x.shape[1])
    dist.all_gather_into_tensor(out, x)
    return out * 2


@program
def all_gather_into_stacked(x):
    out = x.new_empty(dist.get_world_size(), *x.shape)
    dist.all_gather_into_tensor(out, x.sin())
    return out[1 - dist.get_rank()]


@program
def all_gather_own_part(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    parts[dist.get_rank()] = x
    return torch.cat(parts, dim=1)


@program
def all_gather_chunks(x):
    out = x.new_empty(dist.get_world_size() * x.shape[0], x.shape[1])
    dist.all_gather(list(out.chunk(dist.get_world_size())), x * 3)
    return out


@program(whole=False)
def all_gather_object(x):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, {"rank": dist.get_rank()})
    return x + sum(each["rank"] for each in found)


@program
def all_gather_coalesced(x):
    y, z = x * 2, x.sum()
    outs = [[torch.empty_like(y), torch.empty_like(z)] for _ in range(dist.get_world_size())]
    dist.all_gather_coalesced(outs, [y, z])
    return outs


# ---------------------------------------------------------------------- reduce_scatter


@program
def reduce_scatter_tensor(x):
    out = x.new_empty(x.shape[0] // 2, x.shape[1])
    dist.reduce_scatter_tensor(out, x * 2)
    return out + 1


@program
def reduce_scatter_list(x):
    out = x.new_empty(2, 4)
    dist.reduce_scatter(out, list((x * 2).chunk(2)))
    return out + 1


@program
def reduce_scatter_async(x):
    out = x.new_empty(2, 4)
    work = dist.reduce_scatter_tensor(out, x.sin(), op=dist.ReduceOp.MAX, async_op=True)
    y = x.cos()
    work.wait()
    return out, y


@program
def reduce_scatter_then_gather(x):
    part = x.new_empty(2, 4)
    dist.reduce_scatter_tensor(part, x)
    part = part * 2
    out = torch.empty_like(x)
    dist.all_gather_into_tensor(out, part)
    return out


# ---------------------------------------------------------------------- all_to_all


@program(quick=True)
def all_to_all_single(x):
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    return out + 1


@program
def all_to_all_uneven(x):
    mine = dist.get_rank()
    sends = [1, 3] if mine == 0 else [2, 2]
    receives = [1, 2] if mine == 0 else [3, 2]
    out = x.new_empty(sum(receives), 4)
    dist.all_to_all_single(out, x, receives, sends)
    return out * 2


@program
def all_to_all_list(x):
    outs = [torch.empty(2, 4), torch.empty(2, 4)]
    dist.all_to_all(outs, list(x.chunk(2)))
    return torch.cat(outs)


@program
def all_to_all_async(x):
    out = torch.empty_like(x)
    work = dist.all_to_all_single(out, x, async_op=True)
    y = x * 3
    work.wait()
    return out + y


# ---------------------------------------------------------------------- broadcast, reduce, gather, scatter


@program(quick=True)
def broadcast_first(x):
    y = x * 2
    dist.broadcast(y, 0)
    return y + 1


@program
def broadcast_async(x):
    y = x * 2
    work = dist.broadcast(y, src=1, async_op=True)
    z = x.sin()
    work.wait()
    return y + z


@program
def broadcast_group_src(x):
    y = x * 2
    dist.broadcast(y, group=dist.group.WORLD, group_src=1)
    return y


@program
def broadcast_parameters(x):
    parts = [x * i for i in range(3)]
    for part in parts:
        dist.broadcast(part, 1)
    return sum(parts)


@program(whole=False)
def broadcast_object_list(x):
    found = [dist.get_rank(), "text"]
    dist.broadcast_object_list(found, src=1)
    return x + found[0]


@program
def reduce_to_one(x):
    y = x * 2
    dist.reduce(y, dst=0)
    return y if dist.get_rank() == 0 else x


@program
def reduce_async(x):
    y = x * 2
    work = dist.reduce(y, 1, op=dist.ReduceOp.MAX, async_op=True)
    work.wait()
    return y if dist.get_rank() == 1 else x


@program
def gather_to_one(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    dist.gather(x, parts, dst=0)
    return torch.stack(parts) if parts is not None else x


@program
def scatter_from_one(x):
    out = torch.empty_like(x)
    dist.scatter(out, [x, x * 2] if dist.get_rank() == 0 else None, src=0)
    return out + 1


@program(whole=False)
def gather_object(x):
    found = [None] * 2 if dist.get_rank() == 0 else None
    dist.gather_object({"n": dist.get_rank()}, found, dst=0)
    return x + (found[1]["n"] if found else 0)


@program(whole=False)
def scatter_object_list(x):
    out = [None]
    dist.scatter_object_list(out, [1, 2] if dist.get_rank() == 0 else [None, None], src=0)
    return x + out[0]


# ---------------------------------------------------------------------- point to point


@program(quick=True)
def send_and_recv(x):
    if dist.get_rank() == 0:
        dist.send(x * 2, 1)
        return x
    y = torch.empty_like(x)
    dist.recv(y, 0)
    return y + 1


@program
def ping_pong(x):
    y = x * 2
    if dist.get_rank() == 0:
        dist.send(y, 1)
        dist.recv(y, 1)
    else:
        z = torch.empty_like(y)
        dist.recv(z, 0)
        dist.send(z + y, 0)
    return y


@program
def isend_irecv(x):
    out = torch.empty_like(x)
    other = 1 - dist.get_rank()
    works = [dist.isend(x * 2, other), dist.irecv(out, other)]
    for work in works:
        work.wait()
    return out + 1


@program(quick=True)
def batch_isend_irecv(x):
    out = torch.empty_like(x)
    other = 1 - dist.get_rank()
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x * 2, other), dist.P2POp(dist.irecv, out, other)])
    for work in works:
        work.wait()
    return out + 1


@program
def ring_of_steps(x):
    total, block = x, x
    other = 1 - dist.get_rank()
    for _ in range(2):
        out = torch.empty_like(block)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, block.contiguous(), other),
                                            dist.P2POp(dist.irecv, out, other)]):
            work.wait()
        block = out
        total = total + block.sin()
    return total


@program
def recv_any(x):
    if dist.get_rank() == 0:
        dist.send(x, 1)
        return x, 0
    y = torch.empty_like(x)
    source = dist.recv(y)
    return y + source, source


# ---------------------------------------------------------------------- barriers and facts of the world


@program
def barrier_between(x):
    y = x * 2
    dist.barrier()
    return y + 1


@program
def barrier_async(x):
    work = dist.barrier(async_op=True)
    y = x * 2
    work.wait()
    return y


@program(quick=True)
def rank_and_size(x):
    return x * dist.get_rank() + dist.get_world_size()


@program
def facts_of_the_world(x):
    if dist.is_available() and dist.is_initialized():
        return x + dist.get_rank(dist.group.WORLD) + (dist.get_backend() == "gloo")
    return x


@program
def print_on_first(x):
    y = x * 2
    if dist.get_rank() == 0:
        print("rank 0 of", dist.get_world_size())
    return y + 1


@program
def print_after_reduce(x):
    y = x * 2
    dist.all_reduce(y)
    print("reduced on", dist.get_rank())
    return y + 1


@program
def ranks_of_group(x):
    ranks = dist.get_process_group_ranks(dist.group.WORLD)
    return x + sum(ranks) + dist.get_global_rank(dist.group.WORLD, 1) + dist.get_group_rank(dist.group.WORLD, 1)


@program
def methods_of_group(x):
    group = dist.group.WORLD
    return x + group.rank() + group.size()


@program
def rank_dependent_slice(x):
    size = x.shape[0] // dist.get_world_size()
    start = dist.get_rank() * size
    y = x[start:start + size].clone()
    dist.all_reduce(y)
    return y


@built
def metrics_of_training():
    class Meter:
        def __init__(self) -> None:
            self.total, self.count = torch.zeros(()), 0

        def update(self, x):
            self.total = self.total + x.mean()
            self.count += 1

        def average(self):
            total = torch.stack([self.total, torch.tensor(float(self.count))])
            dist.all_reduce(total)
            return total[0] / total[1]

    meter = Meter()

    def f(x):
        meter.update(x)
        return meter.average()
    return f, [(values(),), (values(offset=3),)]


# ---------------------------------------------------------------------- gradients


@program(grad=True)
def gradients_reduced(x):
    loss = (x * x).sum()
    grad, = torch.autograd.grad(loss, x)
    dist.all_reduce(grad)
    return grad / dist.get_world_size()


@built
def step_by_hand():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)

    def f(x):
        loss = model(x).square().mean()
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, grad in zip(model.parameters(), grads, strict=True):
                dist.all_reduce(grad)
                parameter.sub_(grad / dist.get_world_size() * 0.1)
        return loss.detach()
    return f, [(values(),), (values(offset=1),)]


@program
def flattened_bucket(x):
    parts = [x * 2, x.sum(0), x.mean()]
    flat = torch.cat([part.reshape(-1) for part in parts])
    dist.all_reduce(flat)
    sizes = [part.numel() for part in parts]
    return [piece.view_as(part) for piece, part in zip(flat.split(sizes), parts, strict=True)]


@program
def coalescing_manager(x):
    y, z = x * 2, x * 3
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(y)
        dist.all_reduce(z)
    manager.wait()
    return y - z


def helper(x: Any) -> Any:
    dist.all_reduce(x)
    return x


@program
def collective_in_callee(x):
    return helper(x * 2) + helper(x.sin())


@program
def collective_in_branch(x):
    if x.shape[0] > 2:
        y = x.clone()
        dist.all_reduce(y)
        return y
    return x
