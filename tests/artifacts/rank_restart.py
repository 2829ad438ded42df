"""Entries of one rank in another.   python -m tests.artifacts.rank_restart save|load FOLDER RANK

In: two gloo processes; rank 0 saves what it has captured, then both ranks load the files of rank 0.  Out: a JSON line
with the programs that were stored, loaded, and whose result is not that of eager.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import stator
from stator import events


def agnostic(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 3


def by_rank(x: torch.Tensor) -> torch.Tensor:
    return x * (dist.get_rank() + 2)


def by_size(x: torch.Tensor) -> torch.Tensor:
    return x + dist.get_world_size()


def reduced(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    dist.all_reduce(y)
    return y + 1


PROGRAMS = (agnostic, by_rank, by_size, reduced)


def main(what: str, name: str, rank: int) -> None:
    folder, x = Path(name), torch.arange(3.0) + rank
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting-{what}", rank=rank, world_size=2)
    stator.config.artifact_key_file = str(folder / "key")
    stored, loaded, wrong = [], [], []
    for fn in PROGRAMS:
        path = str(folder / fn.__name__)
        with events.record() as log:
            compiled = stator.compile(fn, backend="eager") if what == "save" else stator.load(path, fn, backend="eager")
            found = compiled(x.clone())
        if what == "save" and rank == 0:
            stored += [fn.__name__] * bool(stator.save(compiled, path))
        loaded += [fn.__name__] * any(isinstance(event, events.EntryLoaded) for event in log)
        wrong += [fn.__name__] * (not torch.equal(found, fn(x.clone())))
        dist.barrier()
    dist.destroy_process_group()
    print(json.dumps({"stored": stored, "loaded": loaded, "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
