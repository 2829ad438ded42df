"""The tables of docs/benchmarks.md, from the figures that `make bench` kept: `python -m benchmarks.readme [--check]`.

In: benchmarks/results/python-3.11.json, with the sections that it has.  Out: the part of docs/benchmarks.md between
its two marks, written anew; --check writes nothing and fails where it is not what the figures say.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.sides import DYNAMO, STATOR

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "benchmarks" / "results" / "python-3.11.json"
BEGIN, END = "<!-- written by python -m benchmarks.readme -->", "<!-- end -->"


def number(value: float) -> str:
    """Three figures at most, thousands with a comma."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def row(name: str, ours: float, theirs: float, unit: str) -> str:
    less = f"{theirs / ours:.1f}x" if ours > 0 else ""
    return f"| {name} | {number(ours)} {unit} | {number(theirs)} {unit} | {less} |"


def head(title: str) -> list[str]:
    return ["", f"| {title} | Stator | torch._dynamo | |", "|---|---|---|---|"]


def medians(by_side: dict[str, Any], *keys: str) -> tuple[float, float]:
    found = []
    for side in (STATOR.name, DYNAMO.name):
        value = by_side[side]
        for key in keys:
            value = value[key]
        found.append(value["median"])
    return found[0], found[1]


def capture_rows(figures: dict[str, Any]) -> list[str]:
    lines = head('capture, cold, backend "eager"')
    for name, by_side in figures["capture"].items():
        ours, theirs = medians(by_side, "seconds")
        lines.append(row(name, ours * 1e3, theirs * 1e3, "ms"))
    return lines


def overhead_rows(figures: dict[str, Any]) -> list[str]:
    lines = head("added to one call of the graph")
    for name, by_target in figures["overhead"].items():
        bare = by_target["graph"]["median"]
        ours, theirs = (max(0.0, median - bare) for median in medians(by_target))
        lines.append(row(name, ours / 1e3, theirs / 1e3, "us"))
    return lines


def guard_rows(figures: dict[str, Any]) -> list[str]:
    lines = head("a whole call, its graph costing nothing")
    for name, by_side in figures["guards"].items():
        ours, theirs = medians(by_side)
        lines.append(row(name, ours / 1e3, theirs / 1e3, "us"))
    return lines


def entry_rows(figures: dict[str, Any]) -> list[str]:
    lines = head("many entries of one function, `x + n`")
    for name, by_side in figures["entries"].items():
        ours, theirs = medians(by_side, "call")
        lines.append(row(f"{name}, called in turn", ours / 1e3, theirs / 1e3, "us"))
    ours, theirs = medians(figures["entries"]["64 entries"], "compile")
    return [*lines, row("one more entry (a recompile)", ours * 1e3, theirs * 1e3, "ms")]


def break_rows(figures: dict[str, Any]) -> list[str]:
    lines = head("a call with graph breaks (in a loop torch._dynamo captures nothing: its call is the eager one)")
    for name, by_contender in figures["breaks"].items():
        ours, theirs = medians(by_contender, "call")
        lines.append(row(name, ours * 1e6, theirs * 1e6, "us"))
    return lines


def memory_rows(figures: dict[str, Any]) -> list[str]:
    lines = head("memory of a capture")
    for name, by_side in figures["memory"].items():
        for key in ("peak", "kept"):
            lines.append(row(f"{name}, {key}", *medians(by_side, key), "MiB"))
    return lines


ROWS = {"capture": capture_rows, "overhead": overhead_rows, "guards": guard_rows, "entries": entry_rows,
        "breaks": break_rows, "memory": memory_rows}


def render(figures: dict[str, Any]) -> str:
    machine, taken = figures["machine"], figures["taken"]
    date, loads = max(part["date"] for part in taken.values()), [part["load"] for part in taken.values()]
    once = ("capture", "breaks", "memory")  # the others are about calls, in batches
    rounds = sorted({part["rounds"] for section, part in taken.items() if section in once})
    batches = sorted({part["batches"] for section, part in taken.items() if section not in once})
    repeats = [f"{count} captures" for count in rounds] + [f"{count} batches of calls" for count in batches]
    lines = [
        BEGIN,
        f"Printed by `make bench` on {date}: {machine['cores']} cores of a "
        f"shared machine ({machine['processor']}, load {min(loads)} to {max(loads)}),",
        f"Python {machine['python']}, torch {machine['torch']}; CPU time, medians of "
        f"{' or '.join(repeats)}, both sides in turns in one",
        "process (memory: in processes of their own). Ratios carry over to other machines better than times do.",
        *(line for section, rows in ROWS.items() if section in figures for line in rows(figures)),
        END,
    ]
    return "\n".join(lines)


def replaced(text: str, block: str) -> str:
    before, rest = text.split(BEGIN)
    return before + block + rest.split(END, 1)[1]


def main(arguments: list[str]) -> int:
    readme = ROOT / "docs" / "benchmarks.md"
    text = readme.read_text()
    wanted = replaced(text, render(json.loads(FIGURES.read_text())))
    if "--check" in arguments:
        return int(wanted != text)
    readme.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
