"""Print one table of ratios against torch._dynamo, and write the figures to out/bench.json.

    python -m benchmarks [--quick] [--only TEXT] [--rounds N] [--batches N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import breaks, capture, models, overhead  # noqa: F401  (models registers its workloads)
from benchmarks.samples import Sample
from benchmarks.sides import DYNAMO, SIDES, STATOR
from benchmarks.workloads import WORKLOADS

WIDTH_OF_A_FILE = 140


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round each: does it run at all?")
    parser.add_argument("--only", default="", help="only what has this text in its name")
    parser.add_argument("--rounds", type=int, default=5, help="captures of each workload by each side")
    parser.add_argument("--batches", type=int, default=40, help="batches of calls for the overhead")
    parser.add_argument("--calls", type=int, default=500, help="calls in a batch")
    parser.add_argument("--sides", default=",".join(SIDES), help=f"any of {', '.join(SIDES)}")
    parser.add_argument("--json", type=Path, default=Path("out/bench.json"), help="where the figures go")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.sides.split(",") if name not in SIDES]
    if unknown:
        parser.error(f"no side is named {unknown[0]!r}; there are {', '.join(SIDES)}")
    if chosen.quick:
        chosen.rounds, chosen.batches, chosen.calls = 1, 3, 100
    return chosen


def ratio(ours: float, theirs: float) -> str:
    return f"{theirs / ours:.1f}x" if ours > 0 else "-"


def measure_all(chosen: argparse.Namespace, console: Console) -> dict[str, Any]:
    """All figures, as they are written to the JSON file."""
    sides = [SIDES[name] for name in chosen.sides.split(",")]
    workloads = [each for name, each in WORKLOADS.items() if chosen.only in name]
    cases = [each for name, each in overhead.CASES.items() if chosen.only in name]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    programs = [name for name in breaks.PROGRAMS if chosen.only in name]
    contenders = [each for each in breaks.CONTENDERS if each.side in (*sides, breaks.EAGER)]
    figures: dict[str, Any] = {"capture": {}, "overhead": {}, "breaks": {}}
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(
            "warming up", total=len(workloads) * len(sides) * chosen.rounds + len(cases) * chosen.batches
            + len(programs) * len(contenders) * chosen.rounds
        )
        for side in sides:
            capture.warm_up(side)
        for each in workloads:
            progress.update(task, description=f"capture: {each.name}")
            results = capture.measure(each, sides, chosen.rounds, lambda: progress.advance(task))
            figures["capture"][each.name] = {
                name: {
                    "seconds": result.seconds.as_json(),
                    "graphs": result.graphs,
                    "operations": result.operations,
                }
                for name, result in results.items()
            }
        for case in cases:
            progress.update(task, description=f"overhead: {case.name}")
            samples = overhead.measure(
                case, sides, chosen.batches, chosen.calls, lambda: progress.advance(task)
            )
            figures["overhead"][case.name] = {name: sample.as_json() for name, sample in samples.items()}
        for name in programs:
            progress.update(task, description=f"breaks: {name}")
            found = breaks.measure(name, contenders, chosen.rounds, lambda: progress.advance(task))
            figures["breaks"][name] = {contender: broken.as_json() for contender, broken in found.items()}
    return figures


def breaks_table(figures: dict[str, Any]) -> Table:
    table = Table(title="Graph breaks, backend eager: CPU time, median (quartiles)", title_justify="left")
    for heading in ("program", "compiled by", "graphs", "breaks", "first call", "later call"):
        table.add_column(heading, justify="left" if heading in ("program", "compiled by") else "right")
    for name, by_contender in figures["breaks"].items():
        for number, (contender, found) in enumerate(by_contender.items()):
            first, later = Sample(**found["capture"]), Sample(**found["call"])
            table.add_row("" if number else name, contender, str(found["graphs"]), str(found["breaks"]),
                          first.text(1e3, "ms"), later.text(1e6, "us"))
    return table


def capture_table(figures: dict[str, Any]) -> Table:
    table = Table(title="Capture, cold, backend eager: CPU time, median (quartiles)", title_justify="left")
    for heading in ("workload", "stator", "torch._dynamo", "faster", "graphs", "operations"):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    for name, by_side in figures["capture"].items():
        samples = {side: Sample(**result["seconds"]) for side, result in by_side.items()}
        table.add_row(
            name,
            *(samples[side].text(1e3, "ms") if side in samples else "-" for side in SIDES),
            ratio(samples[STATOR.name].median, samples[DYNAMO.name].median) if len(samples) == 2 else "-",
            " / ".join(str(result["graphs"]) for result in by_side.values()),
            " / ".join(str(result["operations"]) for result in by_side.values()),
        )
    return table


def overhead_table(figures: dict[str, Any]) -> Table:
    table = Table(title="A compiled call: CPU time, median (quartiles)", title_justify="left")
    headings = ("call", "bare graph", "stator", "torch._dynamo", "stator adds", "torch._dynamo adds", "less")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "call" else "right")
    for name, by_target in figures["overhead"].items():
        samples = {target: Sample(**sample) for target, sample in by_target.items()}
        floor = samples[overhead.GRAPH].median
        added = {side: samples[side].median - floor for side in SIDES if side in samples}
        table.add_row(
            name,
            *(samples[key].text(1e-3, "us") if key in samples else "-" for key in (overhead.GRAPH, *SIDES)),
            *(f"{added[side] / 1e3:.2f} us" if side in added else "-" for side in SIDES),
            ratio(added[STATOR.name], added[DYNAMO.name]) if len(added) == 2 else "-",
        )
    return table


def machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def main(arguments: list[str]) -> int:
    chosen = parse(arguments)
    torch.set_num_threads(1)  # CPU time would count the idle spinning of a pool that nothing here needs
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_OF_A_FILE)
    figures = {"machine": machine(), "settings": vars(chosen) | {"json": str(chosen.json)}}
    figures |= measure_all(chosen, console)
    if figures["capture"]:
        console.print(capture_table(figures))
    if figures["overhead"]:
        console.print(overhead_table(figures))
    if figures["breaks"]:
        console.print(breaks_table(figures))
    described = figures["machine"]
    console.print(
        f"Python {described['python']}, torch {described['torch']}, {described['cores']} cores; "
        f"{chosen.rounds} captures a side, {chosen.batches} batches of {chosen.calls} calls.",
        style="dim",
    )
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(figures, indent=2) + "\n")
    console.print(f"figures: {chosen.json}", style="dim")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
