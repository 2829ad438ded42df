"""Does a test fail for everything that can be switched off?   python -m tests.mutation [--only TEXT] [--jobs N] [tests]

In: pytest's tests (default: the curriculum, the laws, the breaks).  Out: the share of mutants that some test noticed, by
sort, and every survivor by name; exit status 1 if there is a survivor that tests/mutation/justified.txt does not explain.

Each test runs once as it is, to learn which of Stator's functions it enters; --jobs processes share them. A mutant then
runs, in a forked child, only tests that enter what it changed, the quickest first, until one fails. --part 2/3 takes every
third mutant from the second on, so that a long run can be made in pieces; --minutes stops in time, and says what is left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import types
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.subjects import Mutant, all_mutants

HERE = Path(__file__).parent
DEFAULT_TESTS = ["tests/lang", "tests/laws/test_laws.py", "tests/breaks", "tests/unit/shapes", "tests/unit/emit",
                 "tests/unit/heap", "tests/unit/guards"]
SECONDS = 60  # of processor time, for one test


class Mutating:
    """A pytest plugin that runs the collected tests under each mutant instead of once."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.jobs, self.most, self.out = options.jobs, options.most, options.json
        self.deadline = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
        part, _, parts = options.part.partition("/")
        wanted = [each for each in all_mutants() if options.only in each.name]
        self.mutants = wanted[int(part) - 1 :: int(parts)]
        self.survivors: list[str] = []
        self.untested: list[str] = []
        self.left: list[str] = []
        self.noticed: dict[str, str] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        entered, seconds = self.learn(session.items)
        everything = sorted((i for i in session.items if i.nodeid in seconds), key=lambda i: seconds[i.nodeid])
        print(f"\n{len(everything)} tests pass, {len(self.mutants)} mutants", file=sys.stderr, flush=True)
        running: dict[int, Mutant] = {}
        waiting = list(self.mutants)
        while waiting or running:
            while waiting and len(running) < self.jobs:
                mutant = waiting.pop(0)
                if time.monotonic() > self.deadline:
                    self.left.append(mutant.name)
                    continue
                # What every test may use meets all of them, those of each file in turn.
                chosen = everything[::7] + everything if mutant.entered is None else \
                    [i for i in everything if i.nodeid in entered[mutant.entered]][: self.most]
                if not chosen:
                    self.untested.append(mutant.name)
                    continue
                running[self.fork(mutant, chosen)] = mutant
            if not running:
                continue
            child, status = os.wait()
            self.judge(running.pop(child), status)
        return True

    def judge(self, mutant: Mutant, status: int) -> None:
        if status == 0:
            self.survivors.append(mutant.name)
        else:
            self.noticed[mutant.name] = "a test failed" if os.WIFEXITED(status) else "the process died"
        done = len(self.survivors) + len(self.noticed)
        print(f"\r{done}/{len(self.mutants)}, {len(self.survivors)} survive", end="", file=sys.stderr, flush=True)

    def learn(self, items: list[pytest.Item]) -> tuple[dict[types.CodeType, set[str]], dict[str, float]]:
        """Which tests enter which code, and how long they take; tests that fail as it is are left out."""
        codes = sorted({each.entered for each in self.mutants} - {None}, key=lambda code: str((code, id(code))))
        number_of = {code: number for number, code in enumerate(codes)}
        entered: dict[Any, set[str]] = defaultdict(set)
        seconds: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / str(shard) for shard in range(self.jobs)]
            children = [self.learner(items[shard :: self.jobs], number_of, file) for shard, file in enumerate(files)]
            for child in children:
                os.waitpid(child, 0)
            for file in files:
                for line in file.read_text().splitlines() if file.exists() else ():
                    nodeid, took, numbers = json.loads(line)
                    seconds[nodeid] = took
                    for number in numbers:
                        entered[codes[number]].add(nodeid)
        return entered, seconds

    def learner(self, items: list[pytest.Item], number_of: dict[Any, int], file: Path) -> int:
        """A process that runs its share of the tests, and writes a line for each that passes."""
        child = os.fork()
        if child:
            return child
        quieten()
        try:
            with file.open("w") as out:
                for item in items:
                    found: set[int] = set()

                    def see(frame: Any, event: str, arg: Any, found: set[int] = found) -> None:
                        if event == "call" and frame.f_code in number_of:
                            found.add(number_of[frame.f_code])

                    sys.setprofile(see)
                    started = time.process_time()
                    try:
                        reports = runtestprotocol(item, log=False)
                    finally:
                        sys.setprofile(None)
                    if all(report.passed for report in reports):
                        print(json.dumps([item.nodeid, time.process_time() - started, sorted(found)]), file=out, flush=True)
        finally:
            os._exit(0)

    def fork(self, mutant: Mutant, items: list[pytest.Item]) -> int:
        child = os.fork()
        if child:
            return child
        quieten()
        try:
            mutant.apply()
            for item in items:
                # A test that no longer ends is noticed; it has its own limit, so that many tests are not taken for one.
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                if not all(report.passed or report.skipped for report in runtestprotocol(item, log=False)):
                    os._exit(1)
            os._exit(0)
        except BaseException:
            os._exit(1)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        justified = {}
        for line in (HERE / "justified.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                name, _, why = line.partition(": ")
                justified[name] = why
        open_ones = [name for name in self.survivors if name not in justified]
        total = len(self.survivors) + len(self.noticed)
        write = terminalreporter.write_line
        for name in open_ones:
            write(f"SURVIVES {name}")
        for name in self.untested:
            write(f"UNTESTED {name}")
        sorts = sorted({sort_of(name) for name in [*self.survivors, *self.noticed]})
        write(f"{'what is switched off':24s} {'mutants':>8s} {'noticed':>8s} {'survive':>8s} {'justified':>9s}")
        for sort in sorts:
            noticed = sum(sort_of(name) == sort for name in self.noticed)
            survive = [name for name in self.survivors if sort_of(name) == sort]
            explained = sum(name in justified for name in survive)
            write(f"{sort:24s} {noticed + len(survive):8d} {noticed:8d} {len(survive):8d} {explained:9d}")
        if self.left:
            write(f"{len(self.left)} mutants were not run in time")
        write(f"{total} mutants run, {len(self.noticed)} noticed, {len(self.survivors)} survive "
              f"({len(self.survivors) - len(open_ones)} justified); {len(self.untested)} are entered by no test here")
        if self.out:
            Path(self.out).write_text(json.dumps({"survivors": self.survivors, "untested": self.untested,
                                                  "left": self.left, "noticed": self.noticed}, indent=1))
        self.failed = bool(open_ones)


def sort_of(name: str) -> str:
    """The kind of thing that a mutant switches off."""
    return "kinds of guards" if name.startswith("no guards") else "classes of rows" if name.startswith("rows of") \
        else "functions of " + name.partition(".")[0]


def quieten() -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("tests", nargs="*", default=DEFAULT_TESTS)
    parser.add_argument("--only", default="", help="mutants whose name holds this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--most", type=int, default=400, help="tests a mutant meets at most")
    parser.add_argument("--json", default="", help="where to write the result")
    parser.add_argument("--part", default="1/1", help="i/n: every n-th mutant from the i-th on")
    parser.add_argument("--minutes", type=float, default=0.0, help="start no mutant after so many minutes")
    options = parser.parse_args()
    plugin = Mutating(options)
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options.tests], plugins=[plugin])
    return 1 if getattr(plugin, "failed", True) else int(status)


if __name__ == "__main__":
    sys.exit(main())
