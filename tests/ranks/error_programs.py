"""Collectives that must happen once: graphs that fail behind them, audits, redone calls, values known while tracing."""

from __future__ import annotations

import torch
import torch.distributed as dist

import stator
from tests.ranks.programs import built, program, values


@program(quick=True, whole=False)
def fails_behind_collective(x):
    y = x.clone()
    dist.all_reduce(y)
    return y[torch.tensor([9])]  # an IndexError, on every rank


@built(quick=True, whole=False)
def fails_on_one_rank():
    """The other rank must get the sum of both, once."""
    def f(x, index):
        y = x * 2
        dist.all_reduce(y)
        return y[index]
    index = torch.tensor([9 if dist.get_rank() == 0 else 1])
    good = torch.tensor([2])
    return f, [(values(), index), (values(offset=1), good), (values(offset=2), index)]


@built(whole=False)
def fails_between_collectives():
    def f(x, index):
        y = x * 2
        dist.all_reduce(y)
        z = y[index].clone()
        dist.all_reduce(z)
        return z
    return f, [(values(), torch.tensor([1])), (values(), torch.tensor([7])), (values(offset=2), torch.tensor([0]))]


@built(quick=True, whole=False)
def handled_error():
    def f(x, index):
        y = x * 2
        dist.all_reduce(y)
        try:
            return y[index]
        except IndexError:
            return y.sum()
    bad = torch.tensor([9 if dist.get_rank() == 0 else 1])
    return f, [(values(), bad), (values(offset=1), torch.tensor([1]))]


@program(quick=True)
def constant_tensor(x):
    n = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(n)
    return x * n


@program
def constant_broadcast(x):
    n = torch.tensor([dist.get_rank() + 5])
    dist.broadcast(n, 1)
    return x + n


@program(whole=False)
def number_of_reduced_constant(x):
    n = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(n)
    return x * n.item()


@built(quick=True, whole=False)
def effects_before_collective():
    log: list[int] = []

    def f(x):
        log.append(len(log))
        y = x * 2
        dist.all_reduce(y)
        return y + len(log)
    return f, [(values(),), (values(offset=1),)]


@built
def same_layers():
    """Layers that replay: each has its own collective."""
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            y = self.linear(x)
            dist.all_reduce(y)
            return y / 2

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[Layer() for _ in range(6)]).requires_grad_(False)
    return model, [(values(),), (values(offset=1),)]


@built(whole=False)
def recompiles_on_one_rank():
    def f(x, n):
        y = x * n
        dist.all_reduce(y)
        return y
    steps = [2, 2, 2] if dist.get_rank() == 0 else [2, 3, 4]
    return f, [(values(), n) for n in steps]


@built(whole=False)
def breaks_on_one_rank():
    def f(x):
        y = x * 2
        if dist.get_rank() == 0:
            stator.graph_break()
        dist.all_reduce(y)
        return y
    return f, [(values(),), (values(offset=1),)]


@built(whole=False)
def uneven_shapes():
    def f(x, y):
        z = y * 2
        total = x.sum()
        dist.all_reduce(total)
        return z + total
    size = 3 + dist.get_rank()
    return f, [(values(), values(size, 2)), (values(), values(size + 2, 2)), (values(), values(size + 5, 2))]


@built(quick=True, whole=False)
def constant_where_one_rank_recompiles():
    def f(x, n):
        c = torch.tensor([1.0])
        dist.all_reduce(c)
        return x * c * n
    steps = [2, 2, 2] if dist.get_rank() == 0 else [2, 3, 4]
    return f, [(values(), n) for n in steps]
