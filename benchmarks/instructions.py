"""Instructions that guards execute, counted by valgrind: `python -m benchmarks.instructions [--record]`.

In: one guard program for each kind of fact.  Out: instructions of a later check (one that compares what the last one
proved), less those of a program without guards.  Counts are the same on a busy machine and on a quiet one.

A process under callgrind runs all of them (`--inside`); only what happens within a check is counted, and what each
program needed is written to a file of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch

from stator import _core
from stator.guards.global_state import global_state
from stator.guards.guard import Guard, Kind
from stator.guards.lower import lower
from stator.guards.tensor_meta import tensor_meta
from stator.source import WORLD, DictOf, Index, Key, Local, Source

BOUNDS = Path(__file__).resolve().parent / "results" / "instructions.json"  # what tests hold the counts against
CHECKS = 20  # of each program, after it has settled
NOTHING = "no guard"


class Node:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def chain(depth: int) -> Node:
    node = Node(n=1)
    for _ in range(depth):
        node = Node(child=node)
    return node


def of(*names: str) -> Source:
    """x.a.b.c"""
    source: Source = Local("x", 0)
    for name in names:
        source = Key(DictOf(source), name)
    return source


def programs() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """A program and its arguments for each kind of fact."""
    x = Local("x", 0)
    tensors = [torch.zeros(2, 3) for _ in range(100)]
    config = {f"k{number}": number for number in range(1000)}
    cases: dict[str, tuple[list[Guard], Any]] = {
        NOTHING: ([], 3),
        "a constant argument": ([Guard(x, Kind.EQUALS, 3)], 3),
        "an argument's type": ([Guard(x, Kind.TYPE, int)], 3),
        "a tensor argument": ([Guard(x, Kind.TENSOR, tensor_meta(tensors[0]))], tensors[0]),
        "torch's state": ([Guard(WORLD, Kind.GLOBAL_STATE, global_state())], 3),
        "an attribute": ([Guard(of("n"), Kind.EQUALS, 1)], Node(n=1)),
        "an attribute, 10 objects deep": ([Guard(of(*["child"] * 10, "n"), Kind.EQUALS, 1)], chain(10)),
        "an empty dict": ([Guard(of("hooks"), Kind.LEN, 0)], Node(hooks=OrderedDict())),
        "a parameter": ([Guard(of("w"), Kind.TENSOR, tensor_meta(tensors[0]))], Node(w=tensors[0])),
        "100 parameters": ([Guard(of(f"w{i}"), Kind.TENSOR, tensor_meta(t)) for i, t in enumerate(tensors)],
                           Node(**{f"w{i}": t for i, t in enumerate(tensors)})),
        "100 tensors in a list": ([Guard(Index(x, i), Kind.TENSOR, tensor_meta(t)) for i, t in enumerate(tensors)],
                                  tensors),
        "1,000 settings": ([Guard(Key(of("config"), key), Kind.EQUALS, value) for key, value in config.items()],
                           Node(config=config)),
    }
    found = {}
    for name, (guards, argument) in cases.items():
        lowered = lower(guards, ())
        found[name] = (_core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, 1), (argument,))
    return found


def inside() -> None:
    """Run under callgrind, which resets its counts at `values` and writes them out at `size`."""
    for name, (program, arguments) in programs().items():
        for _ in range(5):
            if program.check(arguments) != -1:
                raise AssertionError(f"the guards of {name!r} do not hold")
        program.values(arguments)
        for _ in range(CHECKS):
            program.check(arguments)
        program.size()
        print(name, flush=True)


def unavailable() -> str | None:
    """Why nothing can be counted here, or None."""
    return None if shutil.which("valgrind") else "valgrind is not installed"


def count() -> dict[str, float]:
    """Instructions of one check, by kind."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts", "--collect-atstart=no",
            "--toggle-collect=*program_check*", "--zero-before=*program_values*", "--dump-before=*program_size*",
            sys.executable, "-m", "benchmarks.instructions", "--inside",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-2000:]}")
        names = done.stdout.splitlines()
        files = [Path(folder, f"counts.{number}") for number in range(1, len(names) + 1)]
        totals = [int(re.search(r"^(?:summary|totals): (\d+)", file.read_text(), re.M).group(1)) for file in files]  # type: ignore[union-attr]
    each = {name: total / CHECKS for name, total in zip(names, totals, strict=True)}
    floor = each.pop(NOTHING)
    return {name: round(value - floor, 1) for name, value in each.items()}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--record", action="store_true", help="keep the counts: a test holds later ones to them")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.inside:
        inside()
        return 0
    reason = unavailable()
    if reason:
        print(f"{reason}: nothing was counted")
        return 1
    found = count()
    for name, value in found.items():
        print(f"{name:32} {value:10,.1f} instructions")
    if chosen.record:
        BOUNDS.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
