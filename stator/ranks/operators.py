"""Operators for collectives without a schema in torch.   reduce, gather, scatter, send, recv, barrier  ->  `begin`

In: the tensors that a collective writes to, those that it reads, its kind, numbers (a root, a tag, sizes), the
reduction and the name of the group.  Out: nothing; the collective has begun, and `_c10d_functional.wait_tensor` of its
first tensor waits for it.  The schema marks writes, so the memory record needs no list of names.  Nothing is
defined before the first collective is captured.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch._ops import OpOverload

_C10D = torch._C._distributed_c10d
_SCHEMA = "begin(Tensor(a!)[] written, Tensor[] read, str kind, int[] numbers, str reduction, str group_name) -> ()"
Kernel = Callable[[dist.ProcessGroup, list[Tensor], list[Tensor], list[int], str], dist.Work]
REDUCTIONS = {getattr(dist.ReduceOp, name): word for name, word in (
    ("SUM", "sum"), ("AVG", "avg"), ("PRODUCT", "product"), ("MIN", "min"), ("MAX", "max"), ("BAND", "band"),
    ("BOR", "bor"), ("BXOR", "bxor"))}
_OPERATIONS = {word: operation for operation, word in REDUCTIONS.items()}


def _reduce(group: dist.ProcessGroup, written: list[Tensor], read: list[Tensor], numbers: list[int], reduction: str
            ) -> dist.Work:
    options = _C10D.ReduceOptions()
    options.reduceOp, options.rootRank = _OPERATIONS[reduction], numbers[0]
    return group.reduce(written, options)


def _gather(group: dist.ProcessGroup, written: list[Tensor], read: list[Tensor], numbers: list[int], reduction: str
            ) -> dist.Work:
    options = _C10D.GatherOptions()
    options.rootRank = numbers[0]
    return group.gather([written] if group.rank() == numbers[0] else [], read, options)


def _scatter(group: dist.ProcessGroup, written: list[Tensor], read: list[Tensor], numbers: list[int], reduction: str
             ) -> dist.Work:
    options = _C10D.ScatterOptions()
    options.rootRank = numbers[0]
    return group.scatter(written, [read] if group.rank() == numbers[0] else [], options)


def _all_to_all_single(group: dist.ProcessGroup, written: list[Tensor], read: list[Tensor], numbers: list[int],
                       reduction: str) -> dist.Work:
    count, *sizes = numbers  # of the sizes to receive; those to send follow
    return group.alltoall_base(written[0], read[0], sizes[:count], sizes[count:], _C10D.AllToAllOptions())


def _reduce_scatter(group: dist.ProcessGroup, written: list[Tensor], read: list[Tensor], numbers: list[int],
                    reduction: str) -> dist.Work:
    options = _C10D.ReduceScatterOptions()
    options.reduceOp = _OPERATIONS[reduction]
    return group.reduce_scatter(written, [read], options)


_KERNELS: dict[str, Kernel] = {
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "all_gather": lambda group, written, read, numbers, reduction: group.allgather([written], read),
    "all_to_all": lambda group, written, read, numbers, reduction: group.alltoall(written, read,
                                                                                 _C10D.AllToAllOptions()),
    "all_to_all_single": _all_to_all_single,
    "send": lambda group, written, read, numbers, reduction: group.send(read, *numbers),
    "recv": lambda group, written, read, numbers, reduction: group.recv(written, *numbers),
    "barrier": lambda group, written, read, numbers, reduction: group.barrier(_C10D.BarrierOptions()),
}


def _begin(written: list[Tensor], read: list[Tensor], kind: str, numbers: list[int], reduction: str,
           group_name: str) -> None:
    group = _C10D._resolve_process_group(group_name)
    with torch.no_grad():
        work = _KERNELS[kind](group, list(written), list(read), list(numbers), reduction)
    if work is not None:
        _C10D._register_work((written or read)[0], work)


@functools.cache
def begin() -> OpOverload:
    """The operator, defined once."""
    library = torch.library.Library("stator_ranks", "DEF")
    library.define(_SCHEMA)
    library.impl("begin", _begin, "CompositeExplicitAutograd")
    torch.library.register_fake("stator_ranks::begin", lambda *args: None, lib=library)
    torch.fx.node.has_side_effect(torch.ops.stator_ranks.begin.default)
    _LIBRARIES.append(library)
    return torch.ops.stator_ranks.begin.default


_LIBRARIES: list[torch.library.Library] = []  # kept: a library that dies takes its operators with it
