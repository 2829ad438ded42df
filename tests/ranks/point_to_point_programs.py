"""Messages between two ranks, barriers, and facts of the world."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.ranks.programs import built, program, values

# ---------------------------------------------------------------------- point to point


@program(quick=True, pair=True)
def send_and_recv(x):
    if dist.get_rank() == 0:
        dist.send(x * 2, 1)
        return x
    y = torch.empty_like(x)
    dist.recv(y, 0)
    return y + 1


@program(pair=True)
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
    other = dist.get_rank() ^ 1
    works = [dist.isend(x * 2, other), dist.irecv(out, other)]
    for work in works:
        work.wait()
    return out + 1


@program(quick=True)
def batch_isend_irecv(x):
    out = torch.empty_like(x)
    other = dist.get_rank() ^ 1
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x * 2, other), dist.P2POp(dist.irecv, out, other)])
    for work in works:
        work.wait()
    return out + 1


@program
def ring_of_steps(x):
    total, block = x, x
    other = dist.get_rank() ^ 1
    for _ in range(2):
        out = torch.empty_like(block)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, block.contiguous(), other),
                                            dist.P2POp(dist.irecv, out, other)]):
            work.wait()
        block = out
        total = total + block.sin()
    return total


@program(pair=True)
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
