"""Check that all ranks of a script run the same collectives.

    torchrun --nproc-per-node 8 -m stator symmetry script.py [args]   real ranks: ends at the first difference
    python -m stator symmetry --ranks 64 script.py [args]             ranks of a fake process group, one by one

In: a script that calls torch.compile.  Out: a verdict on the error stream; with `--json`, as JSON on the standard
output.  With `--ranks`, collectives leave tensors as they are, and each rank is one forked process (`fake_ranks.py`).
Exit codes: 0 all ranks run the same collectives; 1 ranks differ; 2 a command that is not understood; 3 a rank fails.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import stator
from stator import events
from stator.cli import fake_ranks
from stator.cli.run import install_with_torch

if TYPE_CHECKING:
    import stator.ranks.launches

DIVERGED, FAILED = 1, 3


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m stator symmetry", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="eager", help='instead of "eager"')
    parser.add_argument("--ranks", type=int, default=0, help="size of a fake world")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="script.py and its arguments")
    chosen = parser.parse_args(arguments)
    if not chosen.rest:
        parser.error("give a script")
    import torch.distributed  # noqa: F401  (before the fork, for all ranks)
    install_with_torch(chosen.backend)
    sys.argv = chosen.rest
    sys.path.insert(0, str(Path(chosen.rest[0]).resolve().parent))
    if chosen.ranks:
        verdict = compare_fake_ranks(chosen.rest[0], chosen.ranks)
        told(verdict, chosen.json)
        sys.exit(verdict.status)
    run_real_rank(chosen.rest[0], chosen.json)


# ---------------------------------------------------------------------- real ranks


def run_real_rank(script: str, as_json: bool = False) -> None:
    events.subscribe(_end_at_divergence)
    with events.record() as log:
        runpy.run_path(script, run_name="__main__")
    rank, size = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    told(Verdict(f"rank {rank}: no difference in {count(log)} collectives", 0, size, count(log), [rank]), as_json)


def _end_at_divergence(event: events.Event) -> None:
    if type(event).__name__ == "RankDivergence":
        sys.stderr.flush()
        os._exit(DIVERGED)  # the warning is on the stream; the other ranks would wait for this one


def count(log: list[events.Event]) -> int:
    return len(sequence(log))


def sequence(log: list[events.Event]) -> list[str]:
    """The captured collectives in order, each line once: a rank may compile it more often than others."""
    collectives_of = stator.ranks.launches.collectives_of  # loaded with the first capture
    found = [call.text() for event in log if isinstance(event, events.CaptureFinished) and event.graph is not None
             for call in collectives_of(event.graph.graph)]
    return list(dict.fromkeys(found))


# ---------------------------------------------------------------------- fake ranks


@dataclass(frozen=True)
class Verdict:
    """Outcome of a comparison; `ranks` and `runs`: those that differ, and their collectives."""

    text: str
    status: int
    size: int
    collectives: int
    ranks: list[int] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)


def told(verdict: Verdict, as_json: bool) -> None:
    print(f"stator: {verdict.text}", file=sys.stderr)
    if as_json:
        print(json.dumps(asdict(verdict)))


def compare_fake_ranks(script: str, size: int) -> Verdict:
    """Run all ranks of a fake world."""
    first, *others = fake_ranks.results(script, size, sequence)
    for rank, found in enumerate((first, *others)):
        if first is None or found is None:
            return Verdict(f"rank {rank} of {size} failed", FAILED, size, len(first or ()), [rank])
        if found != first:
            place = next((i for i, pair in enumerate(zip(first, found, strict=False)) if pair[0] != pair[1]),
                         min(len(first), len(found)))
            shown = [calls[place] if place < len(calls) else "no further collective" for calls in (first, found)]
            return Verdict(f"ranks 0 and {rank} of {size} diverge at their collective {place}. Rank 0 runs {shown[0]}; "
                           f"rank {rank} runs {shown[1]}.", DIVERGED, size, place, [0, rank], shown)
    return Verdict(f"{size} ranks run the same {len(first or ())} collectives", 0, size, len(first or ()))
