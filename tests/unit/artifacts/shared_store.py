"""Processes that start at once on one empty store.   python -m tests.unit.artifacts.shared_store [--backend inductor]

In: a number of processes, a backend, rounds in which processes are killed at random, the one that captures among them.
Out: for each process its captures and loaded entries, and how often each piece was captured; problems: a result or a
gradient that is not eager's, a refusal, a piece that was captured twice without a kill, a file that stays behind, or a
process that starts later and captures.
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


class Broken(Blocks):
    """Two pieces, with a graph break between them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        stator.graph_break()
        return x.sin() + 1


PIECES = 4  # Blocks for inference and in training, two of Broken


def work(backend: str) -> dict[str, object]:
    """Compile, call and compare; counts of events."""
    torch.manual_seed(0)
    model, broken, x = Blocks(), Broken(), torch.randn(4, 8)
    with events.record() as log:
        with torch.no_grad():
            right = same(stator.compile(model, backend=backend)(x), model(x))
            right &= same(stator.compile(broken, backend=backend)(x), broken(x))
        stator.compile(model, backend=backend)(x).sum().backward()
        given, model.layers[0].weight.grad = model.layers[0].weight.grad, None
        model(x).sum().backward()
        right &= given is not None and same(given, model.layers[0].weight.grad)
    kinds = collections.Counter(type(event).__name__ for event in log)
    return {"right": right, "waited": sum(event.seconds for event in log if type(event) is events.CaptureAwaited),
            **{name: kinds[name] for name in ("CaptureFinished", "EntryLoaded", "ArtifactRefused") if name in kinds}}


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, atol=1e-6)


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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", action="store_true")
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(options.backend)))
        return 0
    rng, problems, took = random.Random(options.seed), [], 0.0
    for round_ in range(1 + options.killed):
        with tempfile.TemporaryDirectory() as place:
            folder, begun = Path(place), time.monotonic()
            started = [start(folder, options.backend) for _ in range(options.processes)]
            if round_:
                rng.shuffle(started)
                for each in started[2:]:
                    time.sleep(rng.random() * 2 * took / options.processes)
                    each.kill()
                    each.communicate()
                found = [read(each) for each in started[:2]]
            else:
                found = [read(each) for each in started]
                took = time.monotonic() - begun
                captures = sum(each.get("CaptureFinished", 0) for each in found)
                if captures > PIECES:
                    problems.append(f"{captures} captures of {PIECES} pieces")
                problems += [f"{name} stays behind" for name in os.listdir(folder / "store") if name.endswith(".lease")]
            later = [read(start(folder, options.backend))]
            problems += problems_of(found, False) + problems_of(later, True)
            print(f"{'killed' if round_ else 'at once'}, {time.monotonic() - begun:.1f} s, "
                  f"{sum(each.get('CaptureFinished', 0) for each in found) / PIECES:.2f} captures of each piece",
                  *map(json.dumps, found), "later", *map(json.dumps, later), sep="\n  ", flush=True)
    print("\n".join(problems) or "no problem")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
