"""Does a test fail for everything that can be switched off?   python -m tests.mutation [--only REGEX] [--jobs N] [tests]

In: pytest's tests (default: the curriculum, the laws, the breaks, the units).  Out: the share of mutants that some test
noticed, by sort, and every survivor by name; exit status 1 if a mutant survives, or is entered by no test, and
tests/mutation/justified.txt does not say why. A mutant named `variation.` changes no result: status 1 if it is noticed.

Each test runs once as it is, to learn which of Stator's functions it enters (`learning.py`; --learned keeps that in a
file). A mutant then runs, in a forked child, only tests that enter what it changed, until one fails or --seconds of tests
have passed. --part 2/3 takes every third mutant from the second on, --minutes stops in time and says what is left, and
--again takes only what an earlier result (--json) did not see noticed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.learning import Map, by_words, holds, quieten
from tests.mutation.subjects import Mutant, all_mutants, run_at_import

HERE = Path(__file__).parent
DEFAULT_TESTS = ["tests/lang", "tests/laws/test_laws.py", "tests/laws/test_precision.py", "tests/breaks", "tests/unit/shapes",
                 "tests/unit/emit", "tests/unit/heap", "tests/unit/guards", "tests/unit/graph", "tests/unit/interp",
                 "tests/unit/native", "tests/unit/api", "tests/unit/entry", "tests/unit/cache", "tests/unit/audit",
                 "tests/unit/artifacts"]  # fmt: skip
LIMIT = 20  # seconds of processor time for one test, at least
WAITING = 300  # seconds for one test that only waits
NAME = 300  # bytes of a test's name that are told


class Mutating:
    """A pytest plugin that runs the collected tests under each mutant instead of once."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.jobs, self.seconds, self.out = options.jobs, options.seconds, options.json
        self.deadline = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
        part, _, parts = options.part.partition("/")
        self.every = all_mutants()
        self.earlier = json.loads(Path(options.again).read_text())["noticed"] if options.again else {}
        wanted = [each for each in self.every if re.search(options.only, each.name) and each.name not in self.earlier]
        self.mutants = wanted[int(part) - 1 :: int(parts)]
        self.map = Map(options.learned)
        self.survivors: list[str] = []
        self.untested: list[str] = []
        self.guessed: set[str] = set()  # mutants of functions that no test enters
        self.left: list[str] = []
        self.noticed: dict[str, str] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.collect()
        gc.freeze()  # a child that collects would touch, and so copy, all there is
        names = {each.entered: each.function for each in self.every if each.entered is not None}
        self.map.learn(session.items, names, self.jobs, self.deadline)
        items = {i.nodeid: i for i in session.items if i.nodeid in self.map.seconds}
        print(f"\n{len(items)} tests pass, {len(self.mutants)} mutants", file=sys.stderr, flush=True)
        everything = sorted(items, key=self.map.seconds.__getitem__)
        running: dict[int, tuple[Mutant, Any]] = {}
        waiting = list(self.mutants)
        while waiting or running:
            while waiting and len(running) < self.jobs:
                mutant = waiting.pop(0)
                if time.monotonic() > self.deadline:
                    self.left.append(mutant.name)
                    continue
                # What every test may use meets all that there is time for, those whose names speak of it first.
                chosen = self.map.within(self.seconds, by_words(f".{mutant.function}", everything), everything[::7],
                                         everything) if mutant.entered is None \
                    else self.map.tests_for(mutant.function, items, self.seconds)
                if not chosen:  # what the interpreter interprets, nobody enters; a name may tell
                    chosen = self.map.within(self.seconds, by_words(mutant.function, everything))
                    self.guessed.add(mutant.name)
                if not chosen:
                    self.untested.append(mutant.name)
                    continue
                child, answer = self.fork(mutant, [items[test] for test in chosen])
                running[child] = mutant, answer
            if not running:
                continue
            child, status = os.wait()
            self.judge(*running.pop(child), status)
        return True

    def judge(self, mutant: Mutant, answer: Any, status: int) -> None:
        with answer:
            test = os.pread(answer.fileno(), NAME, 0).decode().rstrip()
        if status == 0:
            (self.untested if mutant.name in self.guessed else self.survivors).append(mutant.name)
        else:
            said = test or "before any test"
            self.noticed[mutant.name] = said if os.WIFEXITED(status) else f"{said} (the process died)"
            if test:
                self.map.noticed(mutant.function, test)
        done = len(self.survivors) + len(self.noticed) + len(self.untested)
        self.write()
        print(f"\r{done}/{len(self.mutants)}, {len(self.survivors)} survive", end="", file=sys.stderr, flush=True)

    def fork(self, mutant: Mutant, items: list[pytest.Item]) -> tuple[int, Any]:
        """A process that runs the tests under the mutant, and a file that says which it has begun last."""
        answer = tempfile.TemporaryFile()
        child = os.fork()
        if child:
            return child, answer
        quieten()
        try:
            mutant.apply()
            for item in items:
                os.pwrite(answer.fileno(), item.nodeid.encode()[:NAME].ljust(NAME), 0)
                # A test that no longer ends is noticed; it has its own limit, so that many tests are not taken for one.
                signal.setitimer(signal.ITIMER_PROF, max(LIMIT, 10 * self.map.seconds[item.nodeid]))
                signal.setitimer(signal.ITIMER_REAL, WAITING)
                if not holds(item):
                    os._exit(1)
            os._exit(0)
        except BaseException:
            os._exit(1)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        why = justified()
        early = run_at_import([each for each in self.mutants if each.name in self.untested]) if self.untested else set()
        self.untested = [name for name in self.untested if name not in early]
        open_ones = [name for name in self.survivors if name not in why and not is_variation(name)]
        changed = [name for name in [*self.earlier, *self.noticed] if is_variation(name)]
        never = [name for name in self.untested if name not in why]
        total = len(self.survivors) + len(self.noticed)
        write = terminalreporter.write_line
        for name in open_ones:
            write(f"SURVIVES {name}")
        for name in never:
            write(f"UNTESTED {name}")
        for name in changed:
            write(f"CHANGES A RESULT {name}: {self.noticed.get(name, 'in the earlier run')}")
        sorts = sorted({sort_of(name) for name in [*self.survivors, *self.noticed]})
        write(f"{'what is switched off':24s} {'mutants':>8s} {'noticed':>8s} {'survive':>8s} {'justified':>9s}")
        for sort in sorts:
            noticed = sum(sort_of(name) == sort for name in self.noticed)
            survive = [name for name in self.survivors if sort_of(name) == sort]
            explained = sum(name in why or is_variation(name) for name in survive)
            write(f"{sort:24s} {noticed + len(survive):8d} {noticed:8d} {len(survive):8d} {explained:9d}")
        if early:
            write(f"{len(early)} functions run only while Stator is imported; the rows that they declare are mutants by class")
        if self.left:
            write(f"{len(self.left)} mutants were not run in time")
        write(f"{total} mutants run, {len(self.noticed)} noticed, {len(self.survivors)} survive "
              f"({len(self.survivors) - len(open_ones)} justified); {len(self.untested)} are entered by no test here "
              f"({len(self.untested) - len(never)} justified)")  # fmt: skip
        self.write()
        self.failed = bool(open_ones or never or changed or self.left)

    def write(self) -> None:
        if self.out:
            Path(self.out).write_text(json.dumps({"survivors": self.survivors, "untested": self.untested,
                                                  "left": self.left, "noticed": {**self.earlier, **self.noticed}},
                                                 indent=1))  # fmt: skip


def justified() -> dict[str, str]:
    """Survivors that were looked at: the name of the mutant, and why no test can notice."""
    lines = (HERE / "justified.txt").read_text().splitlines()
    pairs = [line.partition(": ") for line in lines if line and not line.startswith("#")]
    return {name: reason for name, _, reason in pairs}


def is_variation(name: str) -> bool:
    return name.startswith("variation.")


SORTS = {"no guards": "kinds of guards", "rows of": "classes of rows", "core.": "faults of the core",
         "variation.": "variations of the core"}  # fmt: skip


def sort_of(name: str) -> str:
    """The kind of thing that a mutant switches off."""
    known = (sort for start, sort in SORTS.items() if name.startswith(start))
    return next(known, "functions of " + name.partition(".")[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("tests", nargs="*", default=[test for test in DEFAULT_TESTS if Path(test).exists()])
    parser.add_argument("--only", default="", help="mutants whose name matches this expression")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests that a mutant meets at most")
    parser.add_argument("--learned", default="", help="a file that keeps which tests enter what")
    parser.add_argument("--again", default="", help="only mutants that this result does not call noticed")
    parser.add_argument("--json", default="", help="where to write the result")
    parser.add_argument("--part", default="1/1", help="i/n: every n-th mutant from the i-th on")
    parser.add_argument("--minutes", type=float, default=0.0, help="start no mutant after so many minutes")
    options = parser.parse_args()
    plugin = Mutating(options)
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options.tests], plugins=[plugin])
    return 1 if getattr(plugin, "failed", True) else int(status)


if __name__ == "__main__":
    sys.exit(main())
