"""First result of a second process.   python -m benchmarks.restart [llama16 bert12] [eval train]

In: a model, Inductor, and caches that a first process has filled.  Out: seconds from imports done and model built to
the first result (with its backward pass where it trains), wall clock and CPU, of Stator and of torch.compile, each in
new processes of one run; and what Stator traced and compiled, from its events.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("llama16", "bert12")
WAYS = ("eval", "train")


def measure(side: str, name: str, way: str, folder: str) -> None:
    """One process: build, call, print a JSON line."""
    import torch

    from benchmarks import models

    torch.set_num_threads(1)
    model: Any
    model, args = models.llama(16) if name == "llama16" else models.bert()
    model = model.train() if way == "train" else model.eval()
    log: list[Any] = []
    if side == "stator":
        import stator
        from stator import events

        stator.config.artifact_key_file = os.path.join(folder, "key")
        path = os.path.join(folder, f"{name}.{way}")
    began, cpu = time.perf_counter(), time.process_time()
    if side == "stator":
        with events.record() as log:
            compiled = stator.load(path, model) if os.path.exists(path) else stator.compile(model)
            run(compiled, args, way)
    else:
        compiled = torch.compile(model)
        run(compiled, args, way)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    kinds = [type(event).__name__ for event in log]
    row = {"side": side, "seconds": round(seconds, 3), "cpu": round(cpu, 3), "captures": kinds.count("CaptureStarted"),
           "compilations": kinds.count("BackendCompiled"), "loaded": kinds.count("EntryLoaded")}
    if side == "stator" and not os.path.exists(path):
        row["saved"] = stator.save(compiled, path)
        row["why"] = stator.why_not_cached(compiled)
    print(json.dumps(row))


def run(compiled: Any, args: tuple[Any, ...], way: str) -> None:
    import torch

    with torch.set_grad_enabled(way == "train"):
        result = compiled(*args)[0]
        if way == "train":
            result.sum().backward()


def child(folder: str, *command: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
                   "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "benchmarks.restart", "child", *command, folder], cwd=ROOT, check=True,
                          env=environment, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main(names: list[str], ways: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in names or MODELS:
            for way in ways or WAYS:
                first = child(folder, "stator", name, way)
                child(folder, "torch", name, way)
                rows = [(child(folder, "stator", name, way), child(folder, "torch", name, way)) for _ in range(2)]
                ours, theirs = (min(side, key=lambda row: row["cpu"]) for side in zip(*rows, strict=True))
                print(json.dumps({"model": name, "way": way, "first": first, "stator": ours, "torch": theirs,
                                  "ratio": round(ours["seconds"] / theirs["seconds"], 3),
                                  "ratio of CPU": round(ours["cpu"] / theirs["cpu"], 3)}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        measure(*sys.argv[2:])
    else:
        main([each for each in sys.argv[1:] if each in MODELS], [each for each in sys.argv[1:] if each in WAYS])
