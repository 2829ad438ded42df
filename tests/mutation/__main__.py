"""Does a test fail for everything that can be switched off?   python -m tests.mutation [--only TEXT] [--jobs N] [tests]

In: pytest's tests (default: the curriculum, the laws, the breaks).  Out: the share of mutants that some test noticed,
and every survivor by name; exit status 1 if there is a survivor that tests/mutation/justified.txt does not explain.

Each test runs once as it is, to learn which of Stator's functions it enters. A mutant then runs, in a forked child,
only tests that enter what it changed, the quickest first, until one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
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
SECONDS = 90


class Mutating:
    """A pytest plugin that runs the collected tests under each mutant instead of once."""

    def __init__(self, only: str, jobs: int, most: int, out: str) -> None:
        self.only, self.jobs, self.most, self.out = only, jobs, most, out
        self.mutants = [each for each in all_mutants() if only in each.name]
        self.survivors: list[str] = []
        self.untested: list[str] = []
        self.noticed: dict[str, str] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        entered, seconds = self.learn(session.items)
        everything = sorted((i for i in session.items if i.nodeid in seconds), key=lambda i: seconds[i.nodeid])
        running: dict[int, Mutant] = {}
        waiting = list(self.mutants)
        while waiting or running:
            while waiting and len(running) < self.jobs:
                mutant = waiting.pop(0)
                chosen = everything[:: max(1, len(everything) // self.most)] if mutant.entered is None else \
                    [i for i in everything if i.nodeid in entered[mutant.entered]]
                if not chosen:
                    self.untested.append(mutant.name)
                    continue
                running[self.fork(mutant, chosen[: self.most])] = mutant
            if not running:
                continue
            child, status = os.wait()
            finished = running.pop(child)
            if status == 0:
                self.survivors.append(finished.name)
            else:
                self.noticed[finished.name] = "a test failed" if os.WIFEXITED(status) else "the process died"
            done = len(self.survivors) + len(self.noticed)
            print(f"\r{done}/{len(self.mutants)}, {len(self.survivors)} survive", end="", file=sys.stderr, flush=True)
        return True

    def learn(self, items: list[pytest.Item]) -> tuple[dict[types.CodeType, set[str]], dict[str, float]]:
        """Which tests enter which code; tests that fail as it is are left out."""
        wanted = {each.entered for each in self.mutants} - {None}
        entered: dict[Any, set[str]] = defaultdict(set)
        seconds: dict[str, float] = {}
        for number, item in enumerate(items):
            codes: set[Any] = set()

            def see(frame: Any, event: str, arg: Any, codes: set[Any] = codes) -> None:
                if event == "call" and frame.f_code in wanted:
                    codes.add(frame.f_code)

            sys.setprofile(see)
            started = time.perf_counter()
            try:
                reports = runtestprotocol(item, log=False)
            finally:
                sys.setprofile(None)
            if all(report.passed for report in reports):
                seconds[item.nodeid] = time.perf_counter() - started
                for code in codes:
                    entered[code].add(item.nodeid)
            if number % 50 == 0:
                print(f"\rlearning {number}/{len(items)}", end="", file=sys.stderr, flush=True)
        return entered, seconds

    def fork(self, mutant: Mutant, items: list[pytest.Item]) -> int:
        child = os.fork()
        if child:
            return child
        signal.alarm(SECONDS)  # a mutant that never ends is noticed
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            mutant.apply()
            for item in items:
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
        write(f"{total} mutants run, {len(self.noticed)} noticed, {len(self.survivors)} survive "
              f"({len(self.survivors) - len(open_ones)} justified); {len(self.untested)} are entered by no test here")
        if self.out:
            Path(self.out).write_text(json.dumps({"survivors": self.survivors, "untested": self.untested,
                                                  "noticed": self.noticed}, indent=1))
        self.failed = bool(open_ones)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("tests", nargs="*", default=DEFAULT_TESTS)
    parser.add_argument("--only", default="", help="mutants whose name holds this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--most", type=int, default=300, help="tests a mutant meets at most")
    parser.add_argument("--json", default="", help="where to write the result")
    options = parser.parse_args()
    plugin = Mutating(options.only, options.jobs, options.most, options.json)
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options.tests], plugins=[plugin])
    return 1 if getattr(plugin, "failed", True) else int(status)


if __name__ == "__main__":
    sys.exit(main())
