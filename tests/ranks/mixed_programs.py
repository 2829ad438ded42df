"""Programs that mix what others have alone: handles and views, groups and branches, wrappers and checkpoints."""

from __future__ import annotations

import contextlib
import dataclasses

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from tests.ranks.programs import built, program, values


@program
def waits_out_of_order(x):
    """Handles in a dict, awaited by another order than they began in, and one of them not at all."""
    works, parts = {}, {name: x * n for n, name in enumerate("cab", 1)}
    for name, part in parts.items():
        works[name] = dist.all_reduce(part, async_op=True)
    for name in sorted(works):
        works.pop(name).wait()
        parts[name].mul_(2)
    return parts["a"], parts["b"] + parts["c"], len(works)


@program
def reduced_in_nested_loops(x):
    total = x.new_zeros(())
    for row in range(2):
        for column in range(3):
            if (row + column) % 2:
                continue
            cell = x[row, column].clone()
            dist.all_reduce(cell, op=dist.ReduceOp.MAX)
            total = total + cell
    return total


@built(whole=False)
def group_kept_in_an_object():
    """A group that is made at the first call, and used by later ones."""
    class Pool:
        group = None

        def reduce(self, x):
            if self.group is None:
                self.group = dist.new_group(list(range(dist.get_world_size())))
            dist.all_reduce(x, group=self.group)
            return x
    pool = Pool()
    return lambda x: pool.reduce(x * 2) + 1, [(values(),), (values(offset=1),), (values(offset=2),)]


@built
def groups_of_pairs():
    """Each rank is alone in one group, and together with the others in another one."""
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    together = dist.new_group(list(range(dist.get_world_size())))

    def f(x, which):
        group = (alone, together)[which]
        y = x.clone()
        dist.all_reduce(y, group=group)
        return y * dist.get_world_size(group) + dist.get_rank(group)
    return f, [(values(), 0), (values(), 1), (values(offset=1), 0), (values(offset=1), 1)]


@program(pair=True)
def ring_in_a_batch(x):
    """Sends to the right and receives from the left, twice."""
    rank, size = dist.get_rank(), dist.get_world_size()
    held, given = x.clone(), torch.empty_like(x)
    for _ in range(size):
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, held, (rank + 1) % size),
                                        dist.P2POp(dist.irecv, given, (rank - 1) % size)])
        for work in works:
            work.wait()
        held, given = given + 1, torch.empty_like(x)
    return held


@program(whole=False, pair=True)
def batch_of_some_ranks(x):
    """Only rank 0 sends, and only rank 1 receives."""
    y = x.clone()
    if dist.get_rank() == 0:
        operations = [dist.P2POp(dist.isend, x * 3, 1)]
    else:
        operations = [dist.P2POp(dist.irecv, y, 0)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return y


@dataclasses.dataclass
class Config:
    scale: int
    names: tuple[str, ...]


@built(whole=False)
def objects_then_tensors():
    """Ranks agree on a config by objects, and work by it."""
    def f(x):
        shared = [Config(dist.get_rank() + 2, ("a", "b")) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(shared, 0)
        y = x * shared[0].scale
        dist.all_reduce(y)
        return y, shared[0].names
    return f, [(values(),), (values(offset=1),)]


@program
def barriers_between_writes(x):
    log = []
    y = x.clone()
    for step in range(3):
        dist.barrier()
        y.add_(step)
        log.append(step)
        dist.all_reduce(y)
    return y, log


@built(whole=False)
def raises_on_one_rank_behind_all():
    """One rank raises behind the last collective, with changes before it."""
    state = {"calls": 0, "last": None}

    def f(x, bad):
        state["calls"] += 1
        y = x * 2
        dist.all_reduce(y)
        state["last"] = float(state["calls"])
        if bad:
            raise LookupError(state["calls"])
        return y, dict(state)
    bad = dist.get_rank() == 1
    return f, [(values(), False), (values(), bad), (values(offset=1), False)]


@built
def branches_of_rank_and_value():
    """Ranks take other ways by their numbers, and meet in each collective."""
    def f(x, flag):
        if flag.item() > 0:
            y = x.relu()
        else:
            y = x.neg() if dist.get_rank() else x.abs()
        dist.all_reduce(y)
        return y if dist.get_rank() == 0 else y.t()
    mine = torch.tensor(1.0 if dist.get_rank() else -1.0)
    return f, [(values(offset=-3), mine), (values(offset=-3), -mine)]


@program(grad=True)
def functional_with_gradients_in_a_loop(x):
    y = x
    for scale in (1.0, 0.5):
        y = funcol.all_reduce(y.sin() * scale, "sum", dist.group.WORLD) if not y.requires_grad else \
            funcol.all_gather_tensor_autograd(y.sin() * scale, 0, dist.group.WORLD).narrow(0, 0, 4)
    y.square().sum().backward()
    return y.detach() + 0, x.grad.clone()


@program
def functional_results_never_read(x):
    """One result is dropped, one is only measured, and one is awaited by a view."""
    funcol.all_reduce(x * 3, "sum", dist.group.WORLD)
    measured = funcol.all_gather_tensor(x, 0, dist.group.WORLD)
    viewed = funcol.all_reduce(x + 1, "max", dist.group.WORLD).view(-1)[:3]
    return x.new_zeros(measured.shape[0]), viewed + 1


@program
def redistributed_in_turns(x):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    y = DTensor.from_local(x, mesh, [Partial()])
    for placement in (Shard(0), Replicate(), Shard(1), Replicate()):
        y = y.redistribute(mesh, [placement]) * 2
    return y.to_local()


@built
def sharded_matmul_chain():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    first, second = (torch.randn(4, 4) for _ in range(2))
    columns, rows = distribute_tensor(first, mesh, [Shard(1)]), distribute_tensor(second, mesh, [Shard(0)])

    def f(x):
        y = distribute_tensor(x, mesh, [Replicate()])
        return (y @ columns).relu().matmul(rows).full_tensor()
    same = torch.arange(16.0).view(4, 4) / 8
    return f, [(same,), (same + 1,)]


class Block(torch.nn.Module):
    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)
        self.checkpointed = checkpointed

    def body(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False) if self.checkpointed else self.body(x)


def model_of(*blocks: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    for block in blocks:
        for parameter in block.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randn_like(parameter) / 2)
    return torch.nn.Sequential(*blocks)


def gradients(model):
    return [getattr(p.grad, "_local_tensor", p.grad).clone() for p in model.parameters() if p.grad is not None]


@built(whole=False)
def sharded_checkpoints_accumulate():
    """FSDP2 around blocks that are checkpointed inside, two steps without synchronisation and one with it."""
    model = model_of(Block(True), Block(True))
    for block in model:
        fully_shard(block)
    fully_shard(model)

    def called(x, last):
        model.set_requires_gradient_sync(last)
        compiled(x).square().mean().backward()
        return gradients(model) if last else None

    def compiled(x):
        return model(x)
    return called, [(values(), False), (values(offset=1), True), (values(offset=2), True)]


@built(whole=False)
def ddp_unused_in_no_sync():
    """One branch is used by some calls only, and the first calls do not synchronise."""
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = Block(), Block()

        def forward(self, x, both):
            y = self.left(x)
            return self.right(y) if both else y
    model = DistributedDataParallel(model_of(Two())[0], find_unused_parameters=True)

    def f(x, both, synchronised):
        with contextlib.nullcontext() if synchronised else model.no_sync():
            loss = model(x, both).square().mean()
            loss.backward()
        found = gradients(model)
        if synchronised:
            model.zero_grad()
        return loss.detach(), found
    return f, [(values(), True, False), (values(), False, True), (values(offset=1), True, True)]


@built(whole=False)
def ddp_static_graph_of_shared_block():
    """One block is used twice in each call, under static_graph."""
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block(True)

        def forward(self, x):
            return self.block(self.block(x))
    model = DistributedDataParallel(model_of(Twice())[0], static_graph=True)

    def f(x):
        model.zero_grad()
        model(x).square().mean().backward()
        return gradients(model)
    return f, [(values(),), (values(offset=1),), (values(offset=2),)]


@program
def uneven_exchange_of_rows(x):
    """Each rank sends one row to rank 0, and three to rank 1; sizes are exchanged first."""
    sends = torch.tensor([1, 3] + [0] * (dist.get_world_size() - 2))
    receives = torch.empty_like(sends)
    dist.all_to_all_single(receives, sends)
    mine = {0: dist.get_world_size(), 1: 3 * dist.get_world_size()}.get(dist.get_rank(), 0)
    split = {0: 1, 1: 3}.get(dist.get_rank(), 0)
    out = x.new_empty(mine, 4)
    dist.all_to_all_single(out, x.contiguous(), [split] * dist.get_world_size(), [1, 3] + [0] * (dist.get_world_size() - 2))
    return out, receives


@built
def written_through_a_view_of_the_result():
    """The argument of a collective is a view of what the program keeps, which it reads and writes behind it."""
    kept = torch.zeros(8, 4)

    def f(x, start):
        window = kept[start:start + 4]
        window.copy_(x)
        work = dist.all_reduce(window, async_op=True)
        other = kept[4 - start:8 - start] + 1
        work.wait()
        kept[start].zero_()
        return window.clone(), other.clone(), kept.sum()
    return f, [(values(), 0), (values(offset=1), 4), (values(offset=2), 0)]


@built(whole=False)
def error_of_a_collective_is_handled():
    """A wrong argument raises before anything is sent, and the program goes on."""
    def f(x):
        try:
            dist.all_reduce("no tensor")
        except (RuntimeError, TypeError, ValueError) as error:
            name = type(error).__name__
        y = x + len(name)
        dist.all_reduce(y)
        return y, name
    return f, [(values(),), (values(offset=1),)]


@program
def gathered_in_a_comprehension(x):
    size = dist.get_world_size()
    parts = [[torch.empty_like(x[0]) for _ in range(size)] for _ in range(2)]
    works = [dist.all_gather(part, x[n].contiguous(), async_op=True) for n, part in enumerate(parts)]
    [work.wait() for work in works]
    return torch.stack([torch.stack(part) for part in parts]).sum(0)


@program(grad=True)
def collective_inside_no_grad_of_training(x):
    y = (x * x).sum()
    with torch.no_grad():
        scale = y.detach().clone()
        dist.all_reduce(scale, op=dist.ReduceOp.MAX)
    loss = y / scale
    loss.backward()
    return loss.detach(), x.grad.clone()
