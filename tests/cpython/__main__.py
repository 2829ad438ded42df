"""`python -m tests.cpython [--fullgraph] [--jsonl FILE] [--part K/N] [module[::Class.method] ...]`: the table, and what differs.

In: names of modules of the interpreter's `test` package (all of `MODULES` by default).  Out: a line per module, then
every test that passes in eager and not compiled; the exit status is 1 when there is one.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import importlib.util
import itertools
import json
import re
import signal
import sys
import time

from tests.cpython.modules import MODULES
from tests.cpython.running import Outcome, run_module

BAD = ("different", "crashed", "timeout", "internal")
COLUMNS = ("whole", "broke", *BAD)


def cause_of(outcome: Outcome) -> str:
    """The end of what was said: an exception's last line, a break's code."""
    ending = outcome.compiled
    assert ending is not None
    said = ending.internal[0] if ending.internal else ending.detail
    lines = [line for line in said.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else "?"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cpython")
    parser.add_argument("--jsonl", help="append one record per test to this file")
    parser.add_argument("--fullgraph", action="store_true", help="capture bodies whole; a graph break refuses the test")
    parser.add_argument("--part", default="0/1", help="K/N: every N-th test from the K-th on, for N processes side by side")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no test after so many minutes (0: run all)")
    parser.add_argument("modules", nargs="*")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # `timeout` ends the child too
    part, parts = map(int, options.part.split("/"))
    numbers, ends = itertools.count(parts - part), time.monotonic() + 60 * (options.minutes or 1e6)

    def is_wanted(pattern: str, found: str) -> bool:
        named = not pattern or re.search(pattern, found) is not None
        return named and next(numbers) % parts == 0 and time.monotonic() < ends

    bad: list[tuple[str, Outcome]] = []
    codes: collections.Counter[str] = collections.Counter()
    totals: collections.Counter[str] = collections.Counter()
    print(f"{'module':32s} {'eager':>6s} " + " ".join(f"{name:>9s}" for name in COLUMNS), flush=True)
    for name in options.modules or MODULES:
        module, _, test = name.partition("::")
        counts: collections.Counter[str] = collections.Counter()
        if importlib.util.find_spec(f"test.{module}") is None:
            print(f"{module:32s} is no module of this interpreter's tests", flush=True)
            continue
        for outcome in run_module(module, lambda found, test=test: is_wanted(test, found), options.fullgraph):
            verdict = outcome.verdict()
            counts[verdict] += 1
            counts["eager"] += outcome.compiled is not None
            if verdict in BAD:
                bad.append((module, outcome))
            if outcome.compiled is not None:
                codes.update({text.partition(":")[0] for text in outcome.compiled.breaks})
            if options.jsonl:
                with open(options.jsonl, "a", encoding="utf-8") as file:
                    record = {"module": module, "verdict": verdict, **dataclasses.asdict(outcome)}
                    file.write(json.dumps(record) + "\n")
        totals.update(counts)
        print(row(module, counts), flush=True)
    print(row("all", totals))
    print("breaks (tests with each code):", ", ".join(f"{code} {n}" for code, n in codes.most_common()))
    for module, outcome in bad:
        print(f"{outcome.verdict()}: {module}::{outcome.test}\n    {cause_of(outcome)}")
    return 1 if bad else 0


def row(name: str, counts: collections.Counter[str]) -> str:
    return f"{name:32s} {counts['eager']:6d} " + " ".join(f"{counts[column]:9d}" for column in COLUMNS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
