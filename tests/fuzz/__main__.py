"""Run the fuzzer: `python -m tests.fuzz --seeds A:B [--minutes N] [--jobs N --out FILE] [--show SEED] [--shrink]`.

In: a range of seeds, and how long to go on.  Out: each failing seed with its first difference (and with
`--shrink` its small program); the exit status says whether any failed. With `--jobs` the seeds are shared among
processes, each failure is a line of FILE (JSON: seed, kind, detail) and the last line sums up. With `--weights
library` three in four templates are calls into the standard library.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tests.fuzz import parallel
from tests.fuzz.compare import compare
from tests.fuzz.grammar import generate
from tests.fuzz.prelude import PRELUDE
from tests.fuzz.shrink import save, shrink

TRIVIAL = "def program(mat, vec, ivec, n, flag, items, table, point):\n    return mat + n\n"


def headline(difference: str) -> str:
    """The kind of failure, which a smaller program has to keep."""
    for name in ("InternalError", "Unsupported", "RecompileLimit"):
        if name in difference:
            return name + difference.rpartition("failed: ")[2][:30]
    return difference.partition(":")[0].partition(".")[2]


def same_failure(first: str) -> Callable[[str], bool]:
    kind = headline(first)

    def fails(text: str) -> bool:
        try:
            found = compare(text)
        except Exception:  # the text lacks what every program needs, such as `inputs`: no failure of the compiler
            return False
        return bool(found) and headline(found[0]) == kind

    return fails


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seeds", default="0:1000000", help="a range of seeds, first:last")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after so many minutes (0: at the last seed)")
    parser.add_argument("--jobs", type=int, default=0, help="so many processes; a crash or a hang costs one of them")
    parser.add_argument("--out", default="fuzz.jsonl", help="with --jobs: where the failures are written")
    parser.add_argument("--weights", default="", choices=("", "library"), help="mostly calls into the standard library")
    parser.add_argument("--shrink", action="store_true", help="print a small program for each failure")
    parser.add_argument("--save", default="", help="with --shrink: the folder that small programs are written to")
    parser.add_argument("--show", type=int, help="print the program of one seed, and do nothing else")
    return parser.parse_args()


def main() -> int:
    chosen = arguments()
    if chosen.show is not None:
        print(generate(chosen.show, chosen.weights))
        return 0
    torch.set_num_threads(1)
    os.environ["STATOR_STRICT"] = "1"
    first, last = (int(part) for part in chosen.seeds.split(":"))
    deadline = time.monotonic() + chosen.minutes * 60 if chosen.minutes else float("inf")
    if chosen.jobs:
        compare(PRELUDE + TRIVIAL)  # what the first capture loads, the children inherit
        failures = parallel.run(range(first, last), chosen.jobs, lambda seed: compare(generate(seed, chosen.weights)),
                                Path(chosen.out), chosen.minutes)
        return 1 if failures else 0
    run, failed = 0, 0
    for seed in range(first, last):
        if time.monotonic() > deadline:
            break
        source = generate(seed, chosen.weights)
        found = compare(source)
        run += 1
        if not found:
            continue
        failed += 1
        print(f"seed {seed}: {found[0][:600]}", flush=True)
        if chosen.shrink:
            small = shrink(source, same_failure(found[0]))
            print("\n".join(compare(small)[:3])[:1500])
            print(small[small.index("def program") :], flush=True)
            print(f"saved as {save(small, Path(chosen.save), f'seed_{seed}')}" if chosen.save else "", flush=True)
    print(f"seeds {first}:{first + run}, {run} programs, {failed} differ from eager")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
