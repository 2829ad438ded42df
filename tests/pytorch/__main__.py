"""`python -m tests.pytorch [--impl torch] --jsonl FILE path/to/test_misc.py ...`: PyTorch's tests and what they meet.

In: files of PyTorch's `test/dynamo` folder, of whatever release (they are not part of this repository).  Out: a line
per file, one record per test in FILE.  `--methods` takes any test file of PyTorch's (test_nn.py), and compiles each
test method as a whole, as PYTORCH_TEST_WITH_DYNAMO=1 has torch._dynamo do.  `--compare OTHER` leaves out tests that
did not pass in that other run, `--failed` those that did.  `--values` skips assertions about numbers and texts of graphs.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import json
import os
import re
import sys
from collections.abc import Collection

from tests.pytorch.running import run_file, run_methods

PASSED = ("passed",)
COLUMNS = ("passed", "skipped", "fewer", "counts", "refused", "internal", "different", "crashed", "timeout")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pytorch")
    parser.add_argument("--impl", choices=("stator", "torch"), default="stator")
    parser.add_argument("--jsonl", help="append one record per test to this file")
    parser.add_argument("--compare", help="records of another run: only tests that passed there are run")
    parser.add_argument("--failed", help="records of another run: only tests that neither passed nor were skipped there")
    parser.add_argument("--values", action="store_true", help="numbers and texts of graphs are not compared")
    parser.add_argument("--methods", action="store_true",
                        help="a file that compiles nothing itself: every test method is compiled, backend eager")
    parser.add_argument("--every", type=int, default=1, help="only each n-th test")
    parser.add_argument("-k", default="", help="a regular expression that names of tests are searched for")
    parser.add_argument("path", help="one file: names are redirected before it is imported")
    options = parser.parse_args(arguments)
    name = os.path.basename(options.path)
    passed = ended_in(options.compare, name, PASSED) if options.compare else None
    failed = ended_in(options.failed, name, {*COLUMNS} - {*PASSED, "skipped"}) if options.failed else None
    counts: collections.Counter[str] = collections.Counter()
    turn = itertools.count()

    def wanted(test: str) -> bool:
        return (re.search(options.k, test) is not None and (passed is None or test in passed)
                and (failed is None or test in failed)
                and next(turn) % options.every == 0)

    if options.methods:
        results = run_methods(options.path, wanted)
    else:
        results = run_file(options.path, options.impl == "stator", wanted, options.values)
    for result in results:
        counts[result.verdict] += 1
        if options.jsonl:
            with open(options.jsonl, "a", encoding="utf-8") as file:
                file.write(json.dumps({"file": name, "impl": options.impl, **dataclasses.asdict(result)}) + "\n")
        else:
            print(result.verdict, result.test, *result.detail.strip().splitlines()[-12:], sep="\n    ", flush=True)
    print(f"{name:32s} {options.impl:6s} " + " ".join(f"{column} {counts[column]}" for column in COLUMNS))
    return 1 if counts["different"] or counts["crashed"] else 0


def ended_in(path: str, name: str, verdicts: Collection[str]) -> set[str]:
    with open(path, encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return {record["test"] for record in records if record["file"] == name and record["verdict"] in verdicts}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
