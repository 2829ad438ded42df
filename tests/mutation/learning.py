"""Which tests enter which of Stator's functions, and how long they take.

In: pytest's items and the codes that mutants change.  Out: a `Map`: for every test that passes as things are, its seconds
of processor time and the functions it enters; `tests_for` puts the tests of one function in the order in which they are
most likely to notice that it is gone.

A map may be kept in a file (--learned), and then only tests that are not in it are run, also after a run that was
stopped. That a function is entered by other tests than before, because Stator changed, costs time; a test that fails by
now would notice everything, so the file is to be removed where tests were changed.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
import types
import warnings
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.hidden_failures import is_hidden_failure

LONGEST = 120  # seconds of processor time of a test that is watched; one that takes more is left out

class Map:
    """Facts about the tests: duration, and the functions that each runs."""

    def __init__(self, file: str) -> None:
        self.file = Path(file) if file else None
        self.known: set[str] = set()  # tests that were run
        self.seconds: dict[str, float] = {}  # by test that passes
        self.entered: dict[str, set[str]] = defaultdict(set)  # by function: tests
        self.killers: dict[str, list[str]] = defaultdict(list)  # by module: tests that noticed something there
        if self.file is not None and self.file.exists():
            for line in self.file.read_text().splitlines():
                self.add(line)

    def add(self, line: str) -> None:
        nodeid, took, names = json.loads(line)
        self.known.add(nodeid)
        if took is None:
            return
        self.seconds[nodeid] = took
        for name in names:
            self.entered[name].add(nodeid)

    def learn(self, items: list[pytest.Item], name_of: dict[types.CodeType, str], jobs: int, deadline: float) -> None:
        """Run the tests that are not known yet, shared between `jobs` processes, until the deadline."""
        with tempfile.TemporaryDirectory() as folder:
            place = self.file if self.file is not None else Path(folder) / "learned"
            place.parent.mkdir(parents=True, exist_ok=True)
            self.gather(place)  # what a run that was stopped has left
            new = [i for i in items if i.nodeid not in self.known]
            files = [place.with_name(f"{place.name}.{shard}") for shard in range(jobs)]
            shares = {file: new[shard::jobs] for shard, file in enumerate(files)}
            running = {learner(share, name_of, file, deadline): file for file, share in shares.items()}
            while running:
                time.sleep(0.5)
                for child in [child for child in running if os.waitpid(child, os.WNOHANG)[0]]:
                    file = running.pop(child)
                    if rest := not_reached(shares[file], file, deadline):
                        running[learner(rest, name_of, file, deadline)] = file
                done = sum(lines_in(file) for file in files)
                print(f"\r{done}/{len(new)} tests learned", end="", file=sys.stderr, flush=True)
            self.gather(place)

    def gather(self, place: Path) -> None:
        """Take what learners have written beside the map into it."""
        for file in sorted(place.parent.glob(f"{place.name}.*")):
            lines = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
            for line in lines:
                self.add(line)
            with place.open("a") as out:
                out.writelines(lines)
            file.unlink()

    def tests_for(self, name: str, known: Iterable[str], limit: float) -> list[str]:
        """Tests that enter the function, of no more than `limit` seconds together.

        First those that have noticed something in the same module, then those whose names have words in common with the
        function's, rare ones first, then the units of the same package, then the tests of each file in turn; in each,
        quick ones in an order that means nothing, since neighbours notice the same things.
        """
        candidates = self.entered[name] & set(known)
        order = sorted(candidates, key=lambda test: (self.seconds[test] > 0.3, zlib.crc32(test.encode())))
        first = [test for test in reversed(self.killers[module_of(name)]) if test in candidates][:6]
        units = [test for test in order if f"/{name.partition('.')[0]}/" in test]
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in order:
            by_file[test.partition("::")[0]].append(test)
        turns = [test for turn in itertools.zip_longest(*by_file.values()) for test in turn if test is not None]
        related = self.within(limit / 3, first, by_words(name, order))
        return self.within(limit, self.within(limit / 2, related, units), turns)

    def within(self, limit: float, *tests: list[str]) -> list[str]:
        """The tests once each, without those for which no time is left; at least one."""
        chosen: dict[str, None] = {}
        spent = 0.0
        for test in itertools.chain(*tests):
            if test not in chosen and (not chosen or spent + self.seconds[test] <= limit):
                chosen[test] = None
                spent += self.seconds[test]
        return list(chosen)

    def noticed(self, name: str, test: str) -> None:
        killers = self.killers[module_of(name)]
        if test in killers:
            killers.remove(test)
        killers.append(test)


def by_words(name: str, tests: list[str]) -> list[str]:
    """The tests whose names share words with another name; the rarer the words, the earlier."""
    wanted, shared = stems(name.partition(".")[2]), {}
    for test in tests:
        if found := wanted & stems(test):
            shared[test] = found
    rarity = Counter(word for found in shared.values() for word in found)
    return sorted(shared, key=lambda test: -sum(1 / rarity[word] for word in shared[test]))


@functools.cache
def stems(name: str) -> frozenset[str]:
    return frozenset(word[:5] for word in re.findall("[a-z]{4,}", name.lower()) if word not in ("test", "tests"))


def module_of(name: str) -> str:
    return ".".join(name.split(".")[:2])


def lines_in(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def not_reached(share: list[pytest.Item], file: Path, deadline: float) -> list[pytest.Item]:
    """Tests that are left where a learner ended early: it died of the test after its last line, or time ran out."""
    rest = share[lines_in(file) :]
    if not rest or time.monotonic() > deadline:
        return []
    with file.open("a") as out:
        print(json.dumps([rest[0].nodeid, None, []]), file=out)
    return rest[1:]


def learner(items: list[pytest.Item], name_of: dict[types.CodeType, str], file: Path, deadline: float) -> int:
    """A process that runs its share of the tests, and writes a line for each as it ends."""
    child = os.fork()
    if child:
        return child
    quieten()
    try:
        with file.open("a") as out:
            for item in items:
                if time.monotonic() > deadline:
                    break
                found: set[str] = set()

                def see(frame: Any, event: str, arg: Any, found: set[str] = found) -> None:
                    if event == "call" and frame.f_code in name_of:
                        found.add(name_of[frame.f_code])

                signal.setitimer(signal.ITIMER_PROF, LONGEST)
                threading.setprofile(see)  # what a test enters in threads of its own
                sys.setprofile(see)
                try:
                    took = passes(item)
                finally:
                    sys.setprofile(None)
                    threading.setprofile(None)  # type: ignore[arg-type]
                if took is None:
                    took = passes(item)  # there are tests that a profile function disturbs
                print(json.dumps([item.nodeid, took, sorted(found)]), file=out, flush=True)
    finally:
        os._exit(0)


def passes(item: pytest.Item) -> float | None:
    """The seconds of processor time that a test and its processes take; None where it does not pass."""
    if isinstance(item, pytest.Function):  # items of the curriculum have no fixtures
        item._initrequest()
    started = sum(os.times()[:4])
    passed = holds(item, or_skipped=False)
    return sum(os.times()[:4]) - started if passed else None


def holds(item: pytest.Item, or_skipped: bool = True) -> bool:
    """Whether a test passes, and neither a graph nor a capture has failed in it behind an eager call."""
    with warnings.catch_warnings(record=True) as said:
        reports = runtestprotocol(item, log=False)
    redone = any(is_hidden_failure(each.message) for each in said)
    return not redone and all(report.passed or or_skipped and report.skipped for report in reports)


def quieten() -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
