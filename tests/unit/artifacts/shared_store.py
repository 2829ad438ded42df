"""Processes that start at once on one empty store.   python -m tests.unit.artifacts.shared_store [--backend inductor]

In: a number of processes, a backend, rounds in which processes are killed at random.  Out: for each process its captures
and loaded entries; problems: a result that is not eager's, a refusal, or a process that starts later and captures.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import stator
from stator import events


class Blocks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return x


def work(backend: str) -> dict[str, object]:
    """Compile, call and compare; counts of events."""
    torch.manual_seed(0)
    model, x = Blocks().eval(), torch.randn(4, 8)
    compiled = stator.compile(model, backend=backend)
    with events.record() as log, torch.no_grad():
        right = torch.allclose(compiled(x), model(x), atol=1e-6)
    return {"right": right, **collections.Counter(type(event).__name__ for event in log)}


def start(folder: Path, backend: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "STATOR_CACHE_DIR": str(folder / "store"), "XDG_CONFIG_HOME": str(folder / "settings"),
                   "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    command = [sys.executable, "-m", "tests.unit.artifacts.shared_store", "--work", "--backend", backend]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def read(process: subprocess.Popen[str]) -> dict[str, int]:
    lines = process.communicate()[0].splitlines()
    return json.loads(lines[-1]) if process.returncode == 0 else {"right": False}


def problems_of(found: list[dict[str, int]], later: bool) -> list[str]:
    return [json.dumps(each) for each in found
            if not each["right"] or each.get("ArtifactRefused") or later and (
                each.get("CaptureFinished") or not each.get("EntryLoaded"))]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--killed", type=int, default=1, help="rounds with kill -9")
    parser.add_argument("--work", action="store_true")
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(options.backend)))
        return 0
    rng, problems, took = random.Random(0), [], 0.0
    for round_ in range(1 + options.killed):
        with tempfile.TemporaryDirectory() as place:
            begun = time.monotonic()
            started = [start(Path(place), options.backend) for _ in range(options.processes)]
            if round_:
                for each in started[1:]:
                    time.sleep(rng.random() * 2 * took / options.processes)
                    each.kill()
                found = [read(started[0])]
            else:
                found = [read(each) for each in started]
                took = time.monotonic() - begun
            later = [read(start(Path(place), options.backend))]
            problems += problems_of(found, False) + problems_of(later, True)
            print("killed" if round_ else "at once", *map(json.dumps, found), "later", *map(json.dumps, later), sep="\n  ")
    print("\n".join(problems) or "no problem")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
