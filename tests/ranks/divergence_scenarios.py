"""Programs on two ranks that part, and programs that only look as if they did.   @diverges(...) / @symmetric

In: a function of the rank, which runs collectives in compiled functions.  Out: `DIVERGING` and `SYMMETRIC`.  Comments
mark the lines that a report must name: `# rank 0`, `# rank 1`, `# branch`.  `cause()` notes the time from which a
report is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

import stator

Body = Callable[[int], None]


@dataclass(frozen=True)
class Scenario:
    """`guard`, `remedy`: parts of the report."""

    name: str
    body: Body
    guard: str = ""
    remedy: str = ""
    quick: bool = False


DIVERGING: dict[str, Scenario] = {}
SYMMETRIC: dict[str, Scenario] = {}
times: list[float] = []


def cause() -> None:
    times[:] = [time.time()]


def diverges(*, guard: str = "", remedy: str = "", quick: bool = False) -> Callable[[Body], Body]:
    def add(body: Body) -> Body:
        DIVERGING[body.__name__] = Scenario(body.__name__, body, guard, remedy, quick)
        return body
    return add


def symmetric(quick: bool = False) -> Callable[[Body], Body]:
    def add(body: Body) -> Body:
        SYMMETRIC[body.__name__] = Scenario(body.__name__, body, quick=quick)
        return body
    return add


def compiled(fn: Callable[..., torch.Tensor], backend: str = "eager") -> Callable[..., torch.Tensor]:
    return stator.compile(fn, backend=backend)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- ranks that part


@diverges(remedy="take the collective out of the branch")
def another_collective(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == 0:  # branch
            dist.all_reduce(x)  # rank 0
        else:
            dist.broadcast(x, 0)  # rank 1
        return x + 1
    cause()
    step(torch.ones(4))


@diverges(remedy="take the collective out of the branch")
def one_collective_more(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        if rank == 0:  # branch
            dist.all_reduce(x, op=dist.ReduceOp.MAX)  # rank 0
        y = x.new_zeros(2, 4)
        dist.all_gather_into_tensor(y, x)  # rank 1
        return y
    cause()
    step(torch.ones(1, 4))


@diverges(remedy="agree on the number of iterations", guard="n == ")
def loops_of_other_lengths(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor, n: int) -> torch.Tensor:
        for _ in range(n):  # branch
            dist.all_reduce(x)  # rank 1
        dist.broadcast(x, 0)  # rank 0
        return x
    cause()
    step(torch.ones(4), 2 + rank)


@diverges(remedy="the same reduction", guard="name == ")
def another_reduction(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor, name: str) -> torch.Tensor:
        dist.all_reduce(x, op=dist.ReduceOp.SUM if name == "sum" else dist.ReduceOp.MAX)  # rank 0  # rank 1
        return x
    cause()
    step(torch.ones(4), "max" if rank else "sum")


@diverges(remedy="one dtype", guard="x: ")
def another_dtype(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)  # rank 0  # rank 1
        return x
    cause()
    step(torch.ones(4, dtype=torch.float64 if rank else torch.float32))


@diverges(remedy="pad tensors to one size")
def another_size(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        kept = x[: 3 + rank].clone()
        dist.all_reduce(kept)  # rank 0  # rank 1
        return kept
    cause()
    step(torch.ones(8))


@diverges(remedy="the same root")
def another_root(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor, root: int) -> torch.Tensor:
        dist.broadcast(x, root)  # rank 0  # rank 1
        return x
    cause()
    step(torch.ones(4), rank)


@diverges(remedy="in one order on all ranks", quick=True)
def groups_in_another_order(rank: int) -> None:
    one, two = dist.new_group([0, 1]), dist.new_group([0, 1])

    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        if rank == 0:  # branch
            dist.all_reduce(x, group=one)  # rank 0
            dist.all_reduce(x, group=two)
        else:
            dist.all_reduce(x, group=two)  # rank 1
            dist.all_reduce(x, group=one)
        return x
    cause()
    step(torch.ones(4))


@diverges(remedy="all_reduce the condition", quick=True)
def values_decide_after_many_hits(rank: int) -> None:
    """Both ways are captured on both ranks: only hits diverge."""
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:  # branch
            y = x.new_zeros(2, 4)
            dist.all_gather_into_tensor(y, x)  # rank 0
            return y
        dist.all_reduce(x)  # rank 1
        return x
    for n in range(40):
        step(torch.full((1, 4), 1.0 if n % 3 else -1.0))
    cause()
    step(torch.full((1, 4), 1.0 if rank == 0 else -1.0))


@diverges(remedy="take the collective out of the branch")
def one_captures_while_the_other_hits(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor, last: bool) -> torch.Tensor:
        if last and rank == 0:  # branch
            dist.barrier()  # rank 0
        dist.all_reduce(x)  # rank 1
        return x
    for _ in range(10):
        step(torch.ones(4), False)
    cause()
    step(torch.ones(4), rank == 0)


@diverges(remedy="an exception left a call before", quick=True)
def an_exception_on_one_rank(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)  # rank 1
        y = x[index].clone()
        dist.all_reduce(y)  # rank 0
        return y
    step(torch.ones(4), torch.tensor([1, 2, 3, 0]))
    cause()
    try:
        step(torch.ones(4), torch.tensor([9 if rank else 1, 2, 3, 0]))
    except IndexError:
        step(torch.ones(4), torch.tensor([1, 2, 3, 0]))


@diverges(remedy="agree on the number of iterations")
def fewer_batches_on_one_rank(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)  # rank 0
        return x
    for _ in range(20):
        step(torch.ones(4))
    for _ in range(3 - rank):  # branch
        cause()
        step(torch.ones(4))
    dist.barrier()  # rank 1


@diverges(remedy="")
def both_receive_first(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        return x
    x = step(torch.ones(4))
    cause()
    if rank == 0:  # branch
        dist.recv(x, 1)  # rank 0
        dist.send(x, 1)
    else:
        dist.recv(x, 0)  # rank 1
        dist.send(x, 0)


@diverges(remedy="take the collective out of the branch")
def behind_a_graph_break(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        stator.graph_break()
        if rank == 1:  # branch
            return x
        dist.all_reduce(x)  # rank 0
        return x

    @compiled
    def later(x: torch.Tensor) -> torch.Tensor:
        y = x.new_zeros(2, 4)
        dist.all_gather_into_tensor(y, x)  # rank 1
        return y
    cause()
    later(step(torch.ones(1, 4)))


@diverges(remedy="take the collective out of the branch")
def in_a_function_below(rank: int) -> None:
    def synchronised(x: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == 1:  # branch
            return x
        dist.all_reduce(x)  # rank 0
        return x

    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        x = synchronised(x * 2)
        dist.broadcast(x, 0)  # rank 1
        return x
    cause()
    step(torch.ones(4))


# ---------------------------------------------------------------------- ranks that stay together


def _added(x: torch.Tensor, n: int = 1) -> torch.Tensor:
    y = x * n
    dist.all_reduce(y)
    dist.broadcast(y, 0)
    return y


@symmetric(quick=True)
def one_rank_recompiles(rank: int) -> None:
    step = compiled(_added)
    for n in range(6):
        step(torch.ones(4), n if rank else 1)


@symmetric(quick=True)
def one_rank_breaks(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        if rank == 0:
            stator.graph_break()
        dist.broadcast(x, 0)
        return x
    for _ in range(5):
        step(torch.ones(4))


@symmetric()
def one_rank_breaks_in_a_loop(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        for n in range(4):
            dist.all_reduce(x)
            if rank == 1 and n % 2:
                stator.graph_break()
        return x
    for _ in range(3):
        step(torch.ones(4))


@symmetric()
def one_rank_runs_eagerly(rank: int) -> None:
    step = _added if rank else compiled(_added)
    for _ in range(10):
        step(torch.ones(4), 2)


@symmetric()
def one_rank_is_late(rank: int) -> None:
    step = compiled(_added)
    step(torch.ones(4))
    time.sleep(1.0 * rank)
    step(torch.ones(4))
    time.sleep(1.0 - rank)
    step(torch.ones(4))


@symmetric()
def one_rank_works_alone(rank: int) -> None:
    step, alone = compiled(_added), compiled(lambda x: x.sin() + 1)
    for n in range(3):
        step(torch.ones(4))
        if rank == 0:
            alone(torch.ones(n + 1))
            time.sleep(0.3)


@symmetric()
def sizes_differ_where_they_may(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        total = x.sum()
        dist.all_reduce(total)
        return x * total
    for n in range(4):
        step(torch.ones(3 + n * (1 + rank)))


@symmetric()
def other_lines_for_the_same_collective(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == 0:
            dist.all_reduce(x)
        else:
            x = x * 2
            dist.all_reduce(x)
        return x
    for _ in range(4):
        step(torch.ones(4))


@symmetric()
def messages_between_ranks(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
        dist.all_reduce(x)
        return x
    for _ in range(4):
        step(torch.ones(4))


@symmetric()
def one_rank_runs_a_collective_natively(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        y = x.t() if rank == 0 else x  # not contiguous: breaks
        dist.all_reduce(y)
        dist.broadcast(x, 0)
        return x
    for _ in range(3):
        step(torch.ones(4, 4))


@symmetric(quick=True)
def an_exception_on_all_ranks(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        y = x[index].clone()
        dist.all_reduce(y)
        return y
    for last in (0, 9, 1, 9):
        try:
            step(torch.ones(4), torch.tensor([last]))
        except IndexError:
            pass


@symmetric()
def an_exception_behind_the_last_collective(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        return x[index]
    for last in (0, 9 * rank, 1, 9 * rank):
        try:
            step(torch.ones(4), torch.tensor([last]))
        except IndexError:
            pass


@symmetric()
def handles_awaited_later(rank: int) -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        first, second = dist.all_reduce(x, async_op=True), dist.all_reduce(y, async_op=True)
        if rank == 0:
            second.wait()
            first.wait()
        else:
            first.wait()
            second.wait()
        return x + y
    for _ in range(4):
        step(torch.ones(4))


@symmetric()
def groups_of_some_ranks(rank: int) -> None:
    mine = [dist.new_group([each]) for each in range(2)][rank]
    both = dist.new_group([0, 1])

    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        for _ in range(1 + rank):
            dist.all_reduce(x, group=mine)
        dist.all_reduce(x, group=both)
        return x
    for _ in range(4):
        step(torch.ones(4))


@symmetric()
def one_rank_falls_behind_by_many_hits(rank: int) -> None:
    step = compiled(_added)
    for _ in range(200):
        step(torch.ones(4))
        time.sleep(0.002 * rank)
