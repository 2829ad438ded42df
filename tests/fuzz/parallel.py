"""Many programs in several processes, where a program that crashes or hangs costs one process and not the run.

In: seeds, the number of processes, limits.  Out: one `Failure` per failing seed (wrong, internal, crash or timeout), a line
each in the file named by `--out`, and the totals.

Each process is forked with everything loaded, takes every n-th seed, and says on a pipe which seed it is at; so the parent
knows whom to blame when it dies or says nothing for too long, and forks another that goes on after that seed.
"""

from __future__ import annotations

import collections
import faulthandler
import json
import os
import platform
import resource
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

SECONDS = 60.0  # of processor time that one program may take
PATIENCE = 10.0  # how many times as long it may take by the clock
RECYCLE = 400  # programs after which a process is replaced, so that what torch keeps does not add up
EXTRA_MEMORY = 4 << 30
KINDS = ("wrong", "internal", "crash", "timeout")


@dataclass(frozen=True)
class Failure:
    seed: int
    kind: str
    detail: str


@dataclass
class Worker:
    """One forked process; `at` is the seed it is at, None between two."""

    pid: int
    pipe: int
    upcoming: list[int]
    noise: Path
    heard: bytes = b""
    at: int | None = None
    since: float = 0.0
    used: float = 0.0


def processor_seconds(child: int) -> float:
    """CPU time that a running child has used so far; of one that has just ended, nothing is known."""
    try:
        with open(f"/proc/{child}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kind_of(difference: str) -> str:
    return "internal" if "InternalError" in difference else "wrong"


def child(seeds: list[int], pipe: int, noise: Path, judge: Callable[[int], list[str]]) -> None:
    """Never returns."""
    code = 3
    try:
        with noise.open("w", encoding="utf-8") as errors:
            os.dup2(errors.fileno(), 2)
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + EXTRA_MEMORY, used + EXTRA_MEMORY))
        faulthandler.enable(file=2)
        faulthandler.register(signal.SIGUSR1, file=2)
        with os.fdopen(pipe, "w", encoding="utf-8") as out:
            for seed in seeds:
                print(json.dumps({"at": seed}), file=out, flush=True)
                found = judge(seed)
                print(json.dumps({"done": seed, "found": found[:3]}), file=out, flush=True)
        code = 0
    except BaseException:  # the parent reads it in the noise, and blames the seed
        traceback.print_exc()
    finally:
        os._exit(code)


class Run:
    def __init__(self, seeds: range, jobs: int, judge: Callable[[int], list[str]], out: Path, deadline: float,
                 seconds: float = SECONDS) -> None:
        self.judge, self.out, self.deadline, self.seconds = judge, out, deadline, seconds
        self.waiting = [list(seeds[start::jobs]) for start in range(jobs)]
        self.workers: dict[int, Worker] = {}
        self.selector = selectors.DefaultSelector()
        self.failures: list[Failure] = []
        self.done = 0
        self.report = out.open("w", encoding="utf-8")

    def all(self) -> None:
        for shard, seeds in enumerate(self.waiting):
            self.start(shard, seeds)
        while self.workers:
            for key, _ in self.selector.select(timeout=1.0):
                self.hear(key.data)
            for shard, worker in list(self.workers.items()):
                if worker.at is not None and self.is_late(worker):
                    os.kill(worker.pid, signal.SIGUSR1)  # say where it hangs
                    time.sleep(0.3)
                    self.bury(shard, "timeout")
                elif time.monotonic() > self.deadline + self.seconds:
                    self.bury(shard, "")

    def is_late(self, worker: Worker) -> bool:
        return time.monotonic() - worker.since > self.seconds * PATIENCE \
            or processor_seconds(worker.pid) - worker.used > self.seconds

    def start(self, shard: int, seeds: list[int]) -> None:
        if not seeds or time.monotonic() > self.deadline:
            return
        reading, writing = os.pipe()
        noise = self.out.with_suffix(f".{shard}.stderr")
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            child(seeds[:RECYCLE], writing, noise, self.judge)
        os.close(writing)
        worker = Worker(pid, reading, seeds, noise)
        self.workers[shard] = worker
        self.selector.register(worker.pipe, selectors.EVENT_READ, shard)

    def hear(self, shard: int) -> None:
        """The next message of a process, or its end."""
        worker = self.workers[shard]
        said = os.read(worker.pipe, 1 << 16)
        if not said:
            self.bury(shard, "crash" if worker.at is not None else "")
            return
        *lines, worker.heard = (worker.heard + said).split(b"\n")
        for line in lines:
            self.take(worker, json.loads(line))
        if worker.at is not None and time.monotonic() > self.deadline:
            self.bury(shard, "", again=False)

    def take(self, worker: Worker, said: dict[str, Any]) -> None:
        if "at" in said:
            worker.at, worker.since, worker.used = said["at"], time.monotonic(), processor_seconds(worker.pid)
            return
        self.done += 1
        worker.at = None
        worker.upcoming = worker.upcoming[1:]
        if said["found"]:
            self.note(Failure(said["done"], kind_of(said["found"][0]), "\n".join(said["found"])[:1500]))
        if self.done % 200 == 0:
            print(f"{self.done} programs, {len(self.failures)} failures", flush=True)

    def bury(self, shard: int, kind: str, again: bool = True) -> None:
        """The process has ended, or has to; another goes on after the seed it was at."""
        worker = self.workers.pop(shard)
        self.selector.unregister(worker.pipe)
        if kind == "crash":  # it has closed its end, and is about to be gone
            time.sleep(0.3)
        os.kill(worker.pid, signal.SIGKILL)
        _, status = os.waitpid(worker.pid, 0)
        os.close(worker.pipe)
        if kind:
            assert worker.at is not None
            said = worker.noise.read_text(encoding="utf-8", errors="replace")[-1500:]
            self.note(Failure(worker.at, kind, f"wait status {status}\n{said}"))
            self.done += 1
            worker.upcoming = worker.upcoming[1:]
        worker.noise.unlink(missing_ok=True)
        if again:
            self.start(shard, worker.upcoming)

    def note(self, failure: Failure) -> None:
        self.failures.append(failure)
        print(json.dumps(asdict(failure)), file=self.report, flush=True)
        print(f"seed {failure.seed}: {failure.kind}: {failure.detail[:300]}", flush=True)


def commit() -> str:
    said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False,
                          cwd=Path(__file__).parent)
    return said.stdout.strip() or "no git"


def run(seeds: range, jobs: int, judge: Callable[[int], list[str]], out: Path, minutes: float = 0.0,
        seconds: float = SECONDS) -> list[Failure]:
    """Judge every seed; the last line of the file sums up."""
    started = time.monotonic()
    whole = Run(seeds, jobs, judge, out, started + minutes * 60 if minutes else float("inf"), seconds)
    whole.all()
    counts = collections.Counter(failure.kind for failure in whole.failures)
    summary = {"seeds": f"{seeds.start}:{seeds.stop}", "programs": whole.done, "jobs": jobs, "commit": commit(),
               "python": platform.python_version(), "torch": torch.__version__,
               "seconds": round(time.monotonic() - started), **{kind: counts[kind] for kind in KINDS}}
    print(json.dumps(summary), file=whole.report)
    whole.report.close()
    print(json.dumps(summary), file=sys.stdout)
    return whole.failures
