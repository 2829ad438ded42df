"""Processes on one store, killed at random.   python -m tests.unit.artifacts.store_soak --processes 8 --seconds 60

In: a number of processes, seconds, kills a second.  Out: counts of reads and writes; a file or an answer that is not one
of those written is a problem, and so is a refusal.  Killed processes are started again.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from stator import events
from stator.artifacts.container import Container
from stator.artifacts.store import Mode, Store
from stator.settings.process_config import config

KEYS = 12


def sample(key: str, version: int) -> Container:
    """A container whose content proves itself."""
    blob = random.Random(f"{key} {version}").randbytes(2000 + 3000 * (version % 7))
    return Container({"key": key, "version": version, "digest": hashlib.sha256(blob).hexdigest()}, {"blob": blob})


def is_whole(key: str, found: Container) -> bool:
    return found.manifest["key"] == key and found.manifest["digest"] == hashlib.sha256(found.blobs["blob"]).hexdigest()


def work(store: Store, seed: int, reads: Synchronized[int], writes: Synchronized[int], bad: Synchronized[int]) -> None:
    rng = random.Random(seed)
    events.subscribe(lambda event: add(bad) if isinstance(event, events.ArtifactRefused) else None)
    while True:
        key = f"entry {rng.randrange(KEYS)}"
        found = store.get(key)
        add(reads)
        if found is not None and not is_whole(key, found):
            add(bad)
        if found is None or rng.random() < 0.3:
            store.put(key, sample(key, rng.randrange(1000)))
            add(writes)


def add(counter: Synchronized[int]) -> None:
    """Count without a lock: a process that is killed would keep it."""
    counter.value += 1


def soak(folder: Path, processes: int, seconds: float, kills_per_second: float, seed: int = 0) -> dict[str, int]:
    """Counts of one run; `problems` must be 0."""
    context, rng = multiprocessing.get_context("fork"), random.Random(seed)
    store = Store(folder / "store", Mode.READ_WRITE, largest=60_000)
    reads, writes, bad = (context.Value("q", 0, lock=False) for _ in range(3))

    def start() -> multiprocessing.process.BaseProcess:
        worker = context.Process(target=work, args=(store, rng.random(), reads, writes, bad), daemon=True)
        worker.start()
        return worker

    with config.patch(artifact_key_file=str(folder / "settings" / "key")):
        workers, end, kills = [start() for _ in range(processes)], time.monotonic() + seconds, 0
        while time.monotonic() < end:
            time.sleep(rng.random() * 2 / kills_per_second)
            victim = rng.randrange(processes)
            os.kill(workers[victim].pid or 0, signal.SIGKILL)
            workers[victim].join()
            workers[victim] = start()
            kills += 1
        for worker in workers:
            worker.kill()
            worker.join()
        problems = bad.value + sum((found := store.get(key)) is not None and not is_whole(key, found)
                                   for key in (f"entry {number}" for number in range(KEYS)))
        left = [item for item in store.folder.iterdir() if item.suffix == ".stator"]
        unreadable = len(left) - sum(store.get(f"entry {number}") is not None for number in range(KEYS))
        size = sum(item.stat().st_size for item in left)
    return {"reads": reads.value, "writes": writes.value, "kills": kills, "files": len(left), "bytes": size,
            "problems": problems + unreadable + (size > store.largest + 30_000 * processes)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kills", type=float, default=10, help="a second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        counts = soak(Path(place), options.processes, options.seconds, options.kills)
    print(", ".join(f"{count:,} {name}" for name, count in counts.items()))
    sys.exit(bool(counts["problems"]))
