"""Capture time and call overhead of two checkouts: `python -m benchmarks.two_checkouts BASE NEW [--only TEXT]`.

In: folders of two built checkouts.  Out: for each case the medians of CPU time on both sides, and their ratio: of the
first call (capture), of a later call, and of `import stator` behind `import torch`.

Each checkout runs in a process of its own; the two are measured in turns, a few measurements at a time, so that a busy
machine slows both. Several pairs of processes are started, because the layout of memory differs from one to the next.
Captures forget what earlier ones learned; FakeTensor's cache is cleared. The backend is "eager".
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Program = tuple[Callable[..., Any], tuple[Any, ...]]
INSIDE = "--inside"


def programs() -> dict[str, Callable[[], Program]]:
    """Builders of what is captured; this file alone defines them, so that old checkouts can run it."""
    import torch
    from torch import nn

    def add_one() -> Program:
        def run(x: Any) -> Any:
            return x + 1

        return run, (torch.randn(4),)

    def three_operations() -> Program:
        def run(x: Any, y: Any) -> Any:
            return torch.relu(x * y) - 1

        return run, (torch.randn(4), torch.randn(4))

    def mlp() -> Program:
        layers: list[nn.Module] = []
        for _ in range(8):
            layers += [nn.Linear(8, 8), nn.ReLU()]
        return nn.Sequential(*layers).eval(), (torch.randn(2, 8),)

    def transformer() -> Program:
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        model = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).train()
        for each in model.modules():
            if isinstance(each, nn.Dropout):
                each.p = 0.0
        return model, (torch.randn(2, 4, 16),)

    def graph_break() -> Program:
        seen: list[Any] = []
        note = torch.compiler.disable(seen.append)

        def run(x: Any) -> Any:
            x = x + 1
            note(0)
            return x * 2

        return run, (torch.randn(4),)

    def python_writes() -> Program:
        class State:
            def __init__(self) -> None:
                self.steps = 0

        state, log, table = State(), [0], {"last": 0}

        def run(x: Any) -> Any:
            state.steps = 1
            log[0] = 1
            table["last"] = 2
            return x * table["last"] + log[0]

        return run, (torch.randn(4),)

    def tensor_writes() -> Program:
        def run(x: Any, y: Any) -> Any:
            x.mul_(0.5)
            y[0] = 1.0
            return x + y

        return run, (torch.randn(4), torch.randn(4))

    def training_step() -> Program:
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def run(x: Any) -> Any:
            with torch.enable_grad():
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
            return loss.detach()

        return run, (torch.randn(2, 8),)

    return {
        "x + 1": add_one, "three operations": three_operations, "MLP, 8 layers": mlp,
        "transformer, 12 layers": transformer, "a graph break": graph_break,
        "list, dict and attribute writes": python_writes, "in-place writes": tensor_writes,
        "training step": training_step,
    }


def capture_seconds(build: Callable[[], Program], times: int) -> list[float]:
    """CPU seconds of first calls."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import stator

    found = []
    for _ in range(times):
        fn, args = build()
        stator.reset()
        FakeTensorMode.cache_clear()
        gc.collect()
        gc.disable()
        with torch.no_grad():
            start = time.process_time()
            stator.compile(fn, backend="eager")(*args)
            found.append(time.process_time() - start)
        gc.enable()
    return found


def call_seconds(build: Callable[[], Program], times: int) -> list[float]:
    """CPU seconds of one later call, each the mean of a batch."""
    import torch

    import stator

    fn, args = build()
    compiled = stator.compile(fn, backend="eager")
    found = []
    with torch.no_grad():
        start = time.process_time()
        for _ in range(20):
            compiled(*args)
        calls = max(10, int(0.01 / max((time.process_time() - start) / 20, 1e-7)))  # about 10 ms a batch
        gc.collect()
        gc.disable()
        for _ in range(times):
            start = time.process_time()
            for _ in range(calls):
                compiled(*args)
            found.append((time.process_time() - start) / calls)
        gc.enable()
    return found


MEASURES: dict[str, Callable[[Callable[[], Program], int], list[float]]] = {
    "capture": capture_seconds, "call": call_seconds,
}


def inside() -> None:
    """Answer requests, a line each: [measure, case, times] -> a list of seconds."""
    import torch

    start = time.process_time()
    import stator  # noqa: F401

    imported = time.process_time() - start
    torch.set_num_threads(1)
    known = programs()
    capture_seconds(known["x + 1"], 1)
    first = time.process_time() - start
    gc.collect()
    gc.freeze()  # collections between captures look at what is new
    print(json.dumps([imported, first]), flush=True)
    for line in sys.stdin:
        measure, case, times = json.loads(line)
        print(json.dumps(MEASURES[measure](known[case], times)), flush=True)


class Checkout:
    """A process that measures one checkout."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled once
        command = [sys.executable, "-P", __file__, INSIDE]
        self.process = subprocess.Popen(command, cwd=folder, env=environment, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.imported, self.first_capture = self.read()

    def read(self) -> list[float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a measuring process ended early; its error stands above")
        answer: list[float] = json.loads(line)
        return answer

    def measure(self, measure: str, case: str, times: int) -> list[float]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([measure, case, times]) + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


Key = tuple[str, str]


def measure_pair(folders: list[Path], keys: list[Key], rounds: int, into: dict[Key, list[list[float]]]) -> None:
    """One process for each checkout, every case `rounds` times in turns; `into` has a list for each checkout."""
    sides = [Checkout(folder) for folder in folders]
    try:
        for place, side in enumerate(sides):
            into.setdefault(("import", "stator"), [[], []])[place].append(side.imported)
            into.setdefault(("import", "until the first capture"), [[], []])[place].append(side.first_capture)
        for number in range(rounds):
            for measure, case in keys:
                order = (0, 1) if number % 2 == 0 else (1, 0)
                for place in order:
                    into.setdefault((measure, case), [[], []])[place] += sides[place].measure(measure, case, 5)
    finally:
        for side in sides:
            side.close()


def text(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_checkouts", description=__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--only", default="", help="only cases with this text in their names")
    parser.add_argument("--measures", default=",".join(MEASURES), help=f"any of {', '.join(MEASURES)}")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of processes")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each case in a pair, five measurements each")
    chosen = parser.parse_args(arguments)
    keys = [(measure, case) for measure in chosen.measures.split(",") for case in programs() if chosen.only in case]
    found: dict[Key, list[list[float]]] = {}
    for _ in range(chosen.pairs):
        measure_pair([chosen.base.resolve(), chosen.new.resolve()], keys, chosen.rounds, found)
    for (measure, case), (base, new) in found.items():
        before, after = statistics.median(base), statistics.median(new)
        print(f"{measure:8} {case:32} {text(before):>11} {text(after):>11}  {after / before:5.2f}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == [INSIDE]:
        inside()
    else:
        sys.exit(main(sys.argv[1:]))
