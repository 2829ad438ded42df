"""One rank.   names of programs, sides and backends  ->  a line of JSON for each comparison

A program that fails on one rank may leave the others waiting: gloo's timeout ends them, and all ranks make a new process
group before the next program.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import importlib
import json
import logging
import os
import random
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import stator
from stator import events
from stator.ranks.divergence import RankDivergence
from tests.comparison import Checks, Surroundings, World, compare_worlds, stator_compiler
from tests.ranks.programs import PROGRAMS, Program

for _path in sorted(Path(__file__).parent.glob("*_programs.py")):
    importlib.import_module(f"tests.ranks.{_path.stem}")

SECONDS = 30.0  # before gloo gives up
CHECKS = Checks(strides="none", exception="class", warnings="none")


def disturbed(call: Any, generator: random.Random) -> Any:
    """A call before which this rank sleeps, and forgets what it has captured."""
    def disturb() -> tuple[tuple[Any, ...], dict[str, Any]]:
        time.sleep(generator.random() * 0.05)
        if generator.random() < 0.3:
            stator.reset()
        args, kwargs = call() if callable(call) else (call, {})
        return tuple(args), kwargs
    return disturb


def compare(program: Program, side: str, backend: str, chaos: int | None = None) -> dict[str, Any]:
    """Run a program eagerly and compiled on this rank; with `chaos`, a seed, not at the pace of other ranks."""
    def world() -> World:
        fn, calls = program.build()
        if chaos is not None:
            generator = random.Random(chaos)
            calls = [disturbed(call, generator) for call in calls]
        return World(fn, calls, Surroundings(program.module, program.file))

    checks = dataclasses.replace(CHECKS, tolerance=program.tolerance)
    if side == "torch":
        return compare_with_peer(world, backend, checks)
    stator.reset()
    report = compare_worlds(world, stator_compiler(backend, strict=False), checks=checks)
    report.differences += [each.text() for each in report.of(RankDivergence)]
    given_up = [str(each)[:300] for each in report.gave_up()]
    graphs = report.captures[0] if report.captures else 0
    return {"right": not report.differences, "differences": report.differences[:4], "breaks": len(report.breaks),
            "whole": not given_up and bool(report.graph_modules), "graphs": graphs,
            "why": sorted({f"{e.code} {e.cause} at {os.path.basename(e.filename or '')}:{e.line}"
                           for e in report.of(events.GraphBreak)}) + report.fallbacks + list(map(repr, report.failures))}


def compare_with_peer(world: Any, backend: str, checks: Checks) -> dict[str, Any]:
    import torch._dynamo
    from torch._dynamo.utils import counters
    torch._dynamo.reset()
    counters.clear()
    found = compare_worlds(world, lambda fn: torch.compile(fn, backend=backend), checks=checks)
    breaks = sum(counters["graph_break"].values())
    graphs = counters["stats"].get("unique_graphs", 0)
    return {"right": not found.differences, "differences": found.differences[:4], "breaks": breaks,
            "whole": not breaks and graphs > 0, "graphs": graphs,
            "why": [each[:150] for each in counters["graph_break"]]}


def start_group(path: str, rank: int, size: int, number: int) -> dist.Store:
    store = dist.FileStore(f"{path}/store{number}", size)
    store.set_timeout(datetime.timedelta(seconds=60))
    dist.init_process_group("gloo", store=dist.PrefixStore("group", store), rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=SECONDS))
    return store


def meet(store: dist.Store, name: str, rank: int, size: int, word: str) -> list[str]:
    """Exchange a word through the store: no collective of the group takes part."""
    store.set(f"{name}/{rank}", word)
    return [store.get(f"{name}/{each}").decode() for each in range(size)]


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--path", "--sides", "--backends", "--programs"):
        parser.add_argument(name)
    parser.add_argument("--chaos", action="store_true")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--size", type=int)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    groups = 0
    store = start_group(given.path, given.rank, given.size, groups)
    with open(f"{given.path}/result{given.rank}", "a") as results:
        for name in given.programs.split(","):
            for side in given.sides.split(","):
                for backend in given.backends.split(","):
                    begun = time.monotonic()
                    meet(store, f"{name} {side} {backend}", given.rank, given.size, "")
                    print("begin", name, side, backend, file=sys.stderr, flush=True)
                    torch.manual_seed(0)
                    try:
                        found = compare(PROGRAMS[name], side, backend, given.rank if given.chaos else None)
                    except BaseException as error:
                        if not isinstance(error, Exception):
                            raise
                        found = {"right": False, "differences": [f"{type(error).__name__}: {str(error)[:300]}"],
                                 "trace": traceback.format_exc()[-1500:],
                                 "breaks": 0, "whole": False, "graphs": 0, "why": []}
                    found |= {"name": name, "side": side, "backend": backend, "seconds": time.monotonic() - begun}
                    print(json.dumps(found), file=results, flush=True)
                    words = meet(store, f"{name} {side} {backend} end", given.rank, given.size, str(found["right"]))
                    if words.count("True") != given.size:
                        groups += 1
                        with contextlib.suppress(Exception):
                            dist.destroy_process_group()
                        store = start_group(given.path, given.rank, given.size, groups)
    os._exit(0)  # destructors of groups that failed may wait


if __name__ == "__main__":
    main()
