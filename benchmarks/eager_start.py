"""Time the calls of a function that starts eagerly: `python -m benchmarks.eager_start [--training] [--layers 12]`.

In: a Llama-like model of equal layers.  Out: seconds of an eager call, of the first call, of the one that is captured
and sent to another process, and of the one that is swapped in: CPU seconds of the calling thread, and of the wall
clock.  Caches of compilers are empty at the start.  The first call is that of a new compiled function in each round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--layers", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        measure(options)


def measure(options: argparse.Namespace) -> None:
    import torch

    import stator
    from benchmarks.gpu_models import Llama, LlamaSizes
    from stator import events

    torch.manual_seed(0)
    model = Llama(LlamaSizes(dim=64, layers=options.layers, heads=4, kv_heads=2, hidden=176, vocab=256, length=32))
    tokens, positions = torch.randint(0, 256, (4, 32)), torch.arange(32)

    def step(run: Callable[..., Any]) -> tuple[float, float]:
        cpu, wall = time.thread_time(), time.perf_counter()
        with torch.set_grad_enabled(options.training):
            out = run(tokens, positions)
        if options.training:
            out.float().pow(2).mean().backward()
        found = time.thread_time() - cpu, time.perf_counter() - wall
        model.zero_grad()
        return found

    for _ in range(3):
        step(model)
    pairs = []
    for _ in range(ROUNDS):
        compiled = stator.compile(model, options={"start": "eager"}, isolate_recompiles=True)
        pairs.append((step(model), step(compiled)))
    eager, first = [[statistics.median([pair[side][clock] for pair in pairs]) for clock in (0, 1)] for side in (0, 1)]
    show("eager call", *eager)
    show("first call", *first)
    ratios = [statistics.median([pair[1][clock] / pair[0][clock] for pair in pairs]) for clock in (0, 1)]
    print(f"first call / eager call, median of {ROUNDS} ratios: CPU {ratios[0]:.2f}, wall {ratios[1]:.2f}")
    show("captured and sent", *step(compiled))
    log: list[Any] = []
    events.subscribe(log.append)
    waiting = []
    swapped = 0.0, 0.0
    while not any(isinstance(event, events.SwappedIn) for event in log):
        swapped = step(compiled)
        waiting.append(swapped)
        time.sleep(0.01)
    show("eager while the other process compiles", *[statistics.median([each[clock] for each in waiting])
                                                     for clock in (0, 1)])
    show("swapped in", *swapped)
    show("compiled call", *min([step(compiled) for _ in range(10)]))
    for event in log:
        if isinstance(event, (events.CompiledElsewhere, events.SwappedIn)):
            print(event)


def show(name: str, cpu: float, wall: float) -> None:
    print(f"{name:40} CPU {cpu * 1e3:9.1f} ms   wall {wall * 1e3:9.1f} ms")


if __name__ == "__main__":
    main()
