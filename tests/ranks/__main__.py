"""Run the programs on ranks of this machine and print the table.

    python -m tests.ranks [--programs a,b] [--sides stator,torch] [--backends eager,aot_eager,inductor] [--size 2] [--why]
                          [--chaos] [--every 3] [--results FILE] [--cache FOLDER]

In: the names of programs, all of them without `--programs`.  Out: for each side and backend the programs that are right
(values equal to eager's on every rank), captured whole, and the graph breaks; then one line for each that is wrong or broken.
With `--results` a run adds its rows to a file, and programs with a row there are not run again.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
Rows = dict[tuple[str, str, str], dict[str, Any]]  # by name, side, backend: both ranks in one


def run(programs: list[str], sides: list[str], backends: list[str], size: int = 2, seconds: float = 600.0,
        stderr: Any = subprocess.DEVNULL, chaos: bool = False, cache: str | None = None) -> Rows:
    """Run programs on `size` processes; a program during which a process dies is reported wrong."""
    rows: Rows = {}
    end = time.monotonic() + seconds
    while programs and time.monotonic() < end:
        rows |= _run_once(programs, sides, backends, size, end - time.monotonic(), stderr, chaos, cache)
        # A program that ended its process leaves those behind it without a result: they run in new ones.
        ended = next((i for i, name in enumerate(programs) if any(
            not row["known"] for key, row in rows.items() if key[0] == name)), len(programs))
        programs = programs[ended + 1:]
    return rows


def _run_once(programs: list[str], sides: list[str], backends: list[str], size: int, seconds: float, stderr: Any,
              chaos: bool, cache: str | None) -> Rows:
    with tempfile.TemporaryDirectory() as path:
        command = [sys.executable, "-m", "tests.ranks.worker", "--path", path, "--programs", ",".join(programs),
                   "--sides", ",".join(sides), "--backends", ",".join(backends), "--size", str(size), *["--chaos"] * chaos]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        children = [subprocess.Popen([*command, "--rank", str(rank)], cwd=ROOT, stderr=stderr, stdout=stderr,
                                     env={**environment, "TORCHINDUCTOR_CACHE_DIR": cache or f"{path}/inductor{rank}"})
                    for rank in range(size)]
        try:
            for child in children:
                child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for child in children:
                child.kill()
        return joined([read(Path(path) / f"result{rank}") for rank in range(size)], programs, sides, backends)


def read(path: Path) -> Rows:
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return {(each["name"], each["side"], each["backend"]): each for each in found}


def joined(ranks: list[Rows], programs: list[str], sides: list[str], backends: list[str]) -> Rows:
    rows: Rows = {}
    for key in [(name, side, backend) for name in programs for side in sides for backend in backends]:
        parts = [rank.get(key) for rank in ranks]
        known = [part for part in parts if part is not None]
        rows[key] = {
            "right": len(known) == len(parts) and all(part["right"] for part in known),
            "whole": len(known) == len(parts) and all(part["whole"] for part in known),
            "known": len(known) == len(parts),
            "breaks": max([part["breaks"] for part in known], default=0),
            "seconds": max([part["seconds"] for part in known], default=0.0),
            "differences": [f"rank {rank}: {text}" for rank, part in enumerate(parts)
                            for text in (part["differences"] if part else ["ended without a result"])],
            "why": sorted({text for part in known for text in part["why"]}),
            "trace": next((part["trace"] for part in known if part.get("trace")), ""),
        }
    return rows


def table(rows: Rows) -> str:
    counts: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for (_, side, backend), row in rows.items():
        count = counts[side, backend]
        count["programs"] += 1
        count["right"] += row["right"]
        count["whole"] += row["whole"] and row["right"]
        count["breaks"] += row["breaks"]
    names = ("programs", "right", "whole", "breaks")
    lines = ["| side | backend | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    lines += [f"| {side} | {backend} | " + " | ".join(str(count[name]) for name in names) + " |"
              for (side, backend), count in counts.items()]
    return "\n".join(lines)


def kept_rows(path: Path | None) -> Rows:
    return read(path) if path is not None else {}


def keep_rows(path: Path | None, rows: Rows) -> None:
    if path is not None:
        with path.open("a") as file:
            for (name, side, backend), row in rows.items():
                print(json.dumps({**row, "name": name, "side": side, "backend": backend}), file=file)


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests.ranks.worker import PROGRAMS
    parser = argparse.ArgumentParser(prog="python -m tests.ranks")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--sides", default="stator,torch")
    parser.add_argument("--backends", default="eager")
    parser.add_argument("--size", type=int, default=2)
    parser.add_argument("--chaos", action="store_true", help="delays, and ranks that compile again alone")
    parser.add_argument("--every", type=int, default=1, help="take one of so many programs")
    parser.add_argument("--seconds", type=float, default=3000.0)
    parser.add_argument("--why", action="store_true", help="print why programs are not whole")
    parser.add_argument("--stderr", action="store_true")
    parser.add_argument("--results", type=Path, help="file of rows; programs that have theirs are not run again")
    parser.add_argument("--slice", type=int, default=1000, help="programs of one pair of processes")
    parser.add_argument("--cache", help="folder of Inductor that all ranks share")
    given = parser.parse_args()
    sides, backends = given.sides.split(","), given.backends.split(",")
    chosen = [name for name in given.programs.split(",") if given.size == 2 or not PROGRAMS[name].pair][::given.every]
    rows = kept_rows(given.results)
    missing = [name for name in chosen if any((name, side, backend) not in rows for side in sides for backend in backends)]
    end = time.monotonic() + given.seconds
    for start in range(0, len(missing), given.slice):
        if time.monotonic() < end:
            found = run(missing[start:start + given.slice], sides, backends, given.size, end - time.monotonic(),
                        None if given.stderr else subprocess.DEVNULL, given.chaos, given.cache)
            rows |= found
            keep_rows(given.results, found)
    rows = {key: row for key, row in rows.items() if key[0] in chosen and key[1] in sides and key[2] in backends}
    for (name, side, backend), row in rows.items():
        if not row["right"]:
            print(f"WRONG {side} {backend} {name}: {row['differences'][:3]}")
            if given.why and row["trace"]:
                print(row["trace"])
        if given.why and not row["whole"]:
            print(f"broken {side} {backend} {name} ({row['seconds']:.1f} s): {row['why']}")
    print(table(rows))


if __name__ == "__main__":
    main()
