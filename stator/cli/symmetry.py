"""Check that all ranks of a script run the same collectives.

    torchrun --nproc-per-node 8 -m stator symmetry script.py [args]   real ranks: ends at the first difference
    python -m stator symmetry --ranks 64 script.py [args]             ranks of a fake process group, one by one

In: a script that calls torch.compile.  Out: a verdict on the error stream, and an exit status of 1 where ranks differ.
With `--ranks`, collectives leave tensors as they are, and each rank is one forked process.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import stator
from stator import events
from stator.cli.run import install_with_torch

if TYPE_CHECKING:
    import stator.ranks.divergence

DIVERGED = 1


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m stator symmetry", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="eager", help='instead of "eager"')
    parser.add_argument("--ranks", type=int, default=0, help="size of a fake world")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="script.py and its arguments")
    chosen = parser.parse_args(arguments)
    if not chosen.rest:
        parser.error("give a script")
    import torch.distributed  # noqa: F401  (before the fork, for all ranks)
    install_with_torch(chosen.backend)
    sys.argv = chosen.rest
    sys.path.insert(0, str(Path(chosen.rest[0]).resolve().parent))
    if chosen.ranks:
        sys.exit(compare_fake_ranks(chosen.rest[0], chosen.ranks))
    run_real_rank(chosen.rest[0])


# ---------------------------------------------------------------------- real ranks


def run_real_rank(script: str) -> None:
    events.subscribe(_end_at_divergence)
    with events.record() as log:
        runpy.run_path(script, run_name="__main__")
    print(f"stator: rank {os.environ.get('RANK', '0')}: no difference in {count(log)} collectives", file=sys.stderr)


def _end_at_divergence(event: events.Event) -> None:
    if type(event).__name__ == "RankDivergence":
        sys.stderr.flush()
        os._exit(DIVERGED)  # the warning is on the stream; the other ranks would wait for this one


def count(log: list[events.Event]) -> int:
    return len(sequence(log))


def sequence(log: list[events.Event]) -> list[str]:
    """The captured collectives in order, each line once: a rank may compile it more often than others."""
    collectives_of = stator.ranks.divergence.collectives_of  # loaded with the first capture
    found = [call.text() for event in log if isinstance(event, events.CaptureFinished) and event.graph is not None
             for call in collectives_of(event.graph.graph)]
    return list(dict.fromkeys(found))


# ---------------------------------------------------------------------- fake ranks


def compare_fake_ranks(script: str, size: int) -> int:
    """Run all ranks of a fake world; the exit status."""
    first: list[str] = []
    for rank in range(size):
        with tempfile.TemporaryFile("w+") as told:
            child = os.fork()
            if child == 0:
                _run_fake_rank(script, rank, size, told)
            _, status = os.waitpid(child, 0)
            told.seek(0)
            if status:
                print(f"stator: rank {rank} of {size} failed", file=sys.stderr)
                return DIVERGED
            found = json.load(told)
        if rank == 0:
            first = found
        elif found != first:
            place = next((i for i, pair in enumerate(zip(first, found, strict=False)) if pair[0] != pair[1]),
                         min(len(first), len(found)))
            shown = [calls[place] if place < len(calls) else "no further collective" for calls in (first, found)]
            print(f"stator: ranks 0 and {rank} of {size} diverge at their collective {place}. Rank 0 runs {shown[0]}; "
                  f"rank {rank} runs {shown[1]}.", file=sys.stderr)
            return DIVERGED
    print(f"stator: {size} ranks run the same {len(first)} collectives", file=sys.stderr)
    return 0


def _run_fake_rank(script: str, rank: int, size: int, told: TextIO) -> None:
    """One rank of a fake world; it ends the process."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    begin = dist.init_process_group

    def init_process_group(*args: object, **kwargs: object) -> None:
        begin("fake", store=FakeStore(), rank=rank, world_size=size)

    status = DIVERGED
    try:
        dist.init_process_group = init_process_group
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
        with events.record() as log:
            runpy.run_path(script, run_name="__main__")
        json.dump(sequence(log), told)
        told.flush()
        status = 0
    except BaseException as error:
        print(f"stator: rank {rank}: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        os._exit(status)
