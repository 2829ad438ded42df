"""Reductions of torch.distributed in plain functions, and gradients that are reduced."""

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


# ---------------------------------------------------------------------- reduce


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
