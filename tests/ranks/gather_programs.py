"""Collectives that move parts of tensors: gathers, scatters, broadcasts, exchanges."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.ranks.programs import program

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
    return out[dist.get_rank() ^ 1]


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
    out = x.new_empty(x.shape[0] // dist.get_world_size(), x.shape[1])
    dist.reduce_scatter_tensor(out, x * 2)
    return out + 1


@program
def reduce_scatter_list(x):
    out = x.new_empty(4 // dist.get_world_size(), 4)
    dist.reduce_scatter(out, list((x * 2).chunk(dist.get_world_size())))
    return out + 1


@program
def reduce_scatter_async(x):
    out = x.new_empty(4 // dist.get_world_size(), 4)
    work = dist.reduce_scatter_tensor(out, x.sin(), op=dist.ReduceOp.MAX, async_op=True)
    y = x.cos()
    work.wait()
    return out, y


@program
def reduce_scatter_then_gather(x):
    part = x.new_empty(4 // dist.get_world_size(), 4)
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


@program(pair=True)
def all_to_all_uneven(x):
    mine = dist.get_rank()
    sends = [1, 3] if mine == 0 else [2, 2]
    receives = [1, 2] if mine == 0 else [3, 2]
    out = x.new_empty(sum(receives), 4)
    dist.all_to_all_single(out, x, receives, sends)
    return out * 2


@program(pair=True)
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


# ---------------------------------------------------------------------- broadcast, gather, scatter


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
def gather_to_one(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    dist.gather(x, parts, dst=0)
    return torch.stack(parts) if parts is not None else x


@program(pair=True)
def scatter_from_one(x):
    out = torch.empty_like(x)
    dist.scatter(out, [x, x * 2] if dist.get_rank() == 0 else None, src=0)
    return out + 1


@program(whole=False, pair=True)
def gather_object(x):
    found = [None] * 2 if dist.get_rank() == 0 else None
    dist.gather_object({"n": dist.get_rank()}, found, dst=0)
    return x + (found[1]["n"] if found else 0)


@program(whole=False, pair=True)
def scatter_object_list(x):
    out = [None]
    dist.scatter_object_list(out, [1, 2] if dist.get_rank() == 0 else [None, None], src=0)
    return x + out[0]
