"""Run every table on a machine with many cores.   python -m tests.ranks.tables [--slots 6] [--seconds 500] [--tables a,b]

In: the names of tables: `TABLES` are runs of the suite, cut into slices that run beside one another, and `SINGLE` are
commands, which run one after the other in a slot of their own.  Out: a line for each slice when it ends, wrong programs
with their differences, and the joined tables.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.ranks.__main__ import ROOT, Rows, read, table


@dataclass(frozen=True)
class Table:
    """One run of the suite."""

    backends: str
    slice: int  # programs of one pair of processes
    sides: str = "stator"
    size: int = 2
    chaos: bool = False
    every: int = 1


TABLES = {
    "inductor": Table("inductor", 9),
    "four": Table("eager,aot_eager", 10, size=4, every=3),
    "chaos": Table("eager", 15, chaos=True),
    "aot_chaos": Table("aot_eager", 15, chaos=True),
    "plain": Table("eager,aot_eager", 15),
    "peer": Table("eager", 15, sides="torch"),
    "inductor_chaos": Table("inductor", 9, chaos=True, every=3),
}
SINGLE = {
    "divergence": "-m tests.ranks.divergence_table",
    "device": "-m tests.ranks.device --device cuda",
    "symmetry": "-m stator symmetry --ranks 512 tests/ranks/symmetric_script.py",
    "training": "-m tests.ranks.training --steps 50 --why",
    "overhead": "-m tests.ranks.overhead",
}


def chosen(name: str) -> list[list[str]]:
    """The programs of a table, in slices."""
    from tests.ranks.worker import PROGRAMS
    wanted = TABLES[name]
    names = [each for each, program in PROGRAMS.items() if wanted.size == 2 or not program.pair][::wanted.every]
    return [names[start:start + wanted.slice] for start in range(0, len(names), wanted.slice)]


def run_slice(name: str, number: int, programs: list[str], folder: Path, end: float) -> Rows:
    wanted, results = TABLES[name], folder / f"{name}{number}"
    left = end - time.monotonic()
    if left < 10:
        return {}
    command = [sys.executable, "-m", "tests.ranks", "--programs", ",".join(programs), "--sides", wanted.sides, "--backends",
               wanted.backends, "--size", str(wanted.size), "--results", str(results), "--seconds", str(left),
               "--cache", str(folder / "inductor"), *["--chaos"] * wanted.chaos]
    begun = time.monotonic()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    rows = read(results)
    print(f"[{name} {number}] {len(rows)} rows, {sum(row['right'] for row in rows.values())} right, "
          f"{time.monotonic() - begun:.0f} s", flush=True)
    for (program, side, backend), row in rows.items():
        if not row["right"] and side == "stator":
            print(f"WRONG {name} {backend} {program}: {str(row['differences'])[:600]} {row['trace'][-300:]}", flush=True)
    return rows


def run_single(names: list[str], end: float) -> None:
    for name in names:
        begun = time.monotonic()
        try:
            found = subprocess.run([sys.executable, *SINGLE[name].split()], cwd=ROOT, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, timeout=max(1.0, end - begun), check=False)
            text, status = found.stdout, str(found.returncode)
        except subprocess.TimeoutExpired as error:
            text, status = str(error.stdout or ""), "timeout"
        print(f"[{name}] {time.monotonic() - begun:.0f} s, status {status}\n{text[-6000:]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ranks.tables")
    parser.add_argument("--slots", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--tables", default=",".join([*SINGLE, *TABLES]))
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    names = given.tables.split(",")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(given.slots + 1) as pool:
        single = pool.submit(run_single, [name for name in names if name in SINGLE], end)
        jobs = [(name, pool.submit(run_slice, name, number, programs, Path(folder), end))
                for name in names if name in TABLES for number, programs in enumerate(chosen(name))]
        for name in TABLES:
            if name in names:
                rows: Rows = {}
                for each, job in jobs:
                    rows |= job.result() if each == name else {}
                broken = [program for (program, side, _), row in rows.items() if side == "stator" and not row["whole"]]
                print(f"{name}\n{table(rows)}\nnot whole: {' '.join(dict.fromkeys(broken))}", flush=True)
        single.result()


if __name__ == "__main__":
    main()
