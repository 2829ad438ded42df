"""Print tables of ratios against torch._dynamo, and write the figures to out/bench.json.

    python -m benchmarks [--quick] [--only TEXT] [--sections a,b] [--rounds N] [--batches N] [--json FILE] [--record]

--record also keeps the figures in benchmarks/results/, from which `python -m benchmarks.readme` writes the tables of
docs/benchmarks.md;
sections that were not measured this time stay there as they were.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import capture, models  # noqa: F401  (models registers its workloads)
from benchmarks.sections import SECTIONS, Effort
from benchmarks.sides import SIDES

WIDTH_OF_A_FILE = 140
RESULTS = Path(__file__).resolve().parent / "results"


def parse(arguments: list[str]) -> argparse.Namespace:
    known = [section.name for section in SECTIONS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round each: does it run at all?")
    parser.add_argument("--only", default="", help="only what has this text in its name")
    parser.add_argument("--sections", default=",".join(known), help=f"any of {', '.join(known)}")
    parser.add_argument("--rounds", type=int, default=3, help="captures of each workload by each side")
    parser.add_argument("--batches", type=int, default=25, help="batches of calls for the overhead")
    parser.add_argument("--calls", type=int, default=500, help="calls in a batch")
    parser.add_argument("--sides", default=",".join(SIDES), help=f"any of {', '.join(SIDES)}")
    parser.add_argument("--json", type=Path, default=Path("out/bench.json"), help="where the figures go")
    parser.add_argument("--record", action="store_true", help="keep the figures in benchmarks/results/")
    chosen = parser.parse_args(arguments)
    for given, names, what in ((chosen.sides, SIDES, "side"), (chosen.sections, known, "section")):
        unknown = [name for name in given.split(",") if name not in names]
        if unknown:
            parser.error(f"no {what} is named {unknown[0]!r}; there are {', '.join(names)}")
    if chosen.quick:
        chosen.rounds, chosen.batches, chosen.calls = 1, 3, 100
    return chosen


def measure_all(chosen: argparse.Namespace, console: Console) -> dict[str, Any]:
    """All figures, as they are written to the JSON file; a table is printed as soon as its section is done."""
    effort = Effort(chosen.rounds, chosen.batches, chosen.calls, tuple(SIDES[name] for name in chosen.sides.split(",")))
    wanted = [section for section in SECTIONS if section.name in chosen.sections.split(",")]
    rows = {section.name: [name for name in section.rows() if chosen.only in name] for section in wanted}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    figures: dict[str, Any] = {"taken": {}}
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("warming up", total=sum(map(len, rows.values())))
        for side in effort.sides:
            capture.warm_up(side)
        for section in wanted:
            found = figures[section.name] = {}
            figures["taken"][section.name] = {"date": datetime.date.today().isoformat(), "rounds": effort.rounds,
                                              "batches": effort.batches, "load": round(os.getloadavg()[0], 1)}
            for name in rows[section.name]:
                progress.update(task, description=f"{section.name}: {name}")
                found[name] = section.measure(name, effort)
                progress.advance(task)
            if found:
                console.print(section.table(found))
    return figures


def processor() -> str:
    """The processor's name, where the kernel tells."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "processor": processor(),
        "cores": os.cpu_count(),
    }


def without_measurements(value: Any) -> Any:
    """Medians and quartiles, each to four figures: what is kept."""
    if isinstance(value, dict):
        return {key: without_measurements(each) for key, each in value.items() if key != "measurements"}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def keep(figures: dict[str, Any]) -> Path:
    """Put the sections into the file of this Python's results, unless those there are another torch's or machine's."""
    kept = RESULTS / f"python-{'.'.join(platform.python_version_tuple()[:2])}.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    if before.get("machine") == figures["machine"]:
        figures = {**before, **figures, "taken": {**before["taken"], **figures["taken"]}}
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(figures, indent=1) + "\n")
    return kept


def main(arguments: list[str]) -> int:
    chosen = parse(arguments)
    torch.set_num_threads(1)  # CPU time would count the idle spinning of a pool that nothing here needs
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_OF_A_FILE)
    figures: dict[str, Any] = {"machine": machine()}
    figures |= measure_all(chosen, console)
    described = figures["machine"]
    console.print(
        f"Python {described['python']}, torch {described['torch']}, {described['cores']} cores of "
        f"{described['processor']}; {chosen.rounds} captures a side, "
        f"{chosen.batches} batches of {chosen.calls} calls.",
        style="dim",
    )
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(figures, indent=2) + "\n")
    console.print(f"figures: {chosen.json}", style="dim")
    if chosen.record:
        console.print(f"kept: benchmarks/results/{keep(without_measurements(figures)).name}", style="dim")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
