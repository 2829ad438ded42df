"""Options of collectives, as pybind11 records.   AllreduceOptions  ->  a new one with the same fields"""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.distributed as dist

Record = TypeVar("Record")
NAMES = """AllreduceOptions AllreduceCoalescedOptions AllgatherOptions BroadcastOptions ReduceOptions
    ReduceScatterOptions GatherOptions ScatterOptions AllToAllOptions BarrierOptions""".split()
RECORDS: frozenset[type] = frozenset(
    getattr(torch._C._distributed_c10d, name) for name in NAMES) if dist.is_available() else frozenset()


def copy_options(options: Record) -> Record:
    made = type(options)()
    for name, entry in vars(type(options)).items():
        if isinstance(entry, property) and entry.fset is not None:
            setattr(made, name, getattr(options, name))
    return made
