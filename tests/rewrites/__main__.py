"""`python -m tests.rewrites [--only TEXT] [--rewrite NAME]`: every case of the curriculum under every rewrite.

In: a text that topics or cases must hold, and one rewrite, if not all.  Out: each pair that differs from eager or is no longer
captured whole; the exit status is 1 when there is one.
"""

from __future__ import annotations

import argparse
import collections
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.rewrites.comparing import cases, judge, topics  # noqa: E402
from tests.rewrites.rewriting import REWRITES  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rewrites")
    parser.add_argument("--only", default="")
    parser.add_argument("--rewrite", choices=list(REWRITES), action="append")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run: collections.Counter[str] = collections.Counter()
    bad: collections.Counter[str] = collections.Counter()
    for path in topics():
        for case in cases(path):
            if options.only not in f"{path.stem}::{case.name}":
                continue
            for rewrite in options.rewrite or REWRITES:
                found = judge(path, case, rewrite)
                run[rewrite] += found is not None
                if found:
                    bad[rewrite] += 1
                    print(f"{path.stem}::{case.name} [{rewrite}]: {found[0]}", flush=True)
    for rewrite in run:
        print(f"{rewrite:20s} {run[rewrite]:5d} cases, {bad[rewrite]} differ or break")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
