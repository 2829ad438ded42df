"""Run programs of libraries on both sides, each in a process of its own.

    python -m benchmarks.libraries                                 every program whose library is installed, as a table
    python -m benchmarks.libraries --names trainer,lora --out F    some of them; rows as JSON lines; rows in F stay
    python -m benchmarks.libraries --table F                       the table of these rows

A process runs the program in eager, then compiled with backend "eager": stator.install() and torch.compile, or
torch.compile alone.  Both start from the same seeds.  Values must be equal, within rounding.  Columns: graphs, breaks
as places in the source (from events of Stator, and from the log of torch._dynamo), and operations captured.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import logging
import random
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks.libraries import model_libraries, numeric_libraries, training_libraries
from benchmarks.libraries.registry import PROGRAMS
from tests.models.torchvision_ops import declare_missing

SIDES = ("stator", "torch._dynamo")
PLACE = r"Graph [Bb]reak.* in user code at (\S+:\d+)"
MODULES = training_libraries, model_libraries, numeric_libraries  # which register their programs


def leaves(value: Any) -> list[Any]:
    """Tensors and numbers of nested results, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [] if value is None else [value]


def difference(found: Any, expected: Any) -> str:
    """Describe the first difference; empty where there is none."""
    ours, theirs = leaves(found), leaves(expected)
    if len(ours) != len(theirs):
        return f"{len(ours)} values instead of {len(theirs)}"
    for one, other in zip(ours, theirs, strict=True):
        try:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
        except AssertionError as error:
            return str(error).splitlines()[0][:200]
    return ""


def seeded(run: Any, compile: Any) -> Any:
    import numpy

    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    return run(compile)


def calls_of(graph: Any) -> int:
    return sum(node.op.startswith("call_") for node in graph.graph.nodes) if graph is not None else 0


def counted(side: str) -> tuple[Any, Any]:
    """A function that compiles, and one that returns the counts so far."""
    import torch._dynamo

    if side == "stator":
        import stator
        from stator import events

        seen: list[Any] = []
        stator.install()
        events.subscribe(seen.append)

        def counts() -> dict[str, Any]:
            breaks = [each for each in seen if isinstance(each, events.GraphBreak)]
            captures = [each for each in seen if isinstance(each, events.CaptureFinished)]
            eager = [each for each in seen if isinstance(each, events.EagerFallback)]
            return {
                "graphs": sum(bool(each.graph_nodes) for each in captures),
                "breaks": len({(each.code, each.filename, each.line) for each in breaks}),
                "passages": len(breaks),
                "operations": sum(calls_of(each.graph) for each in captures),
                "causes": sorted({f"{each.code} {each.cause}"[:160] for each in breaks}),
                "fallbacks": sorted({each.why for each in eager}),
            }
    else:
        log = logging.getLogger("torch._dynamo.symbolic_convert.__graph_breaks")
        torch._logging.set_logs(graph_breaks=True)
        places: set[str] = set()
        log.propagate, log.handlers = False, [logging.NullHandler()]

        def note(record: logging.LogRecord) -> bool:
            places.update(re.findall(PLACE, record.getMessage()))
            return True

        log.addFilter(note)

        def counts() -> dict[str, Any]:
            counters = torch._dynamo.utils.counters
            return {
                "graphs": counters["stats"]["unique_graphs"],
                "breaks": len(places),
                "passages": sum(counters["graph_break"].values()),
                "operations": counters["stats"]["calls_captured"],
                "causes": sorted(f"{text.splitlines()[0]}"[:160] for text in counters["graph_break"]),
            }

    return (lambda target: torch.compile(target, backend="eager") if target is not None else True), counts


def measure(name: str, side: str) -> dict[str, Any]:
    """One program on one side, in this process."""
    warnings.simplefilter("ignore")
    logging.getLogger().setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    declare_missing()
    run = PROGRAMS[name].run
    compile, counts = counted(side)  # before libraries wrap torch.compile, as they do at import
    try:
        expected = seeded(run, lambda target: target)
    except Exception as error:
        return {"outcome": "eager fails", "why": f"{type(error).__name__}: {error}"[:300]}
    try:
        why = difference(seeded(run, compile), expected)
    except Exception as error:
        return {"outcome": "error", "why": f"{type(error).__name__}: {error}"[:300], **counts()}
    return {"outcome": "differs" if why else "equal", "why": why, **counts()}


def spawn(name: str, side: str, limit: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.libraries", "--one", name, side]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"outcome": "timeout"}
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"outcome"')]
    return json.loads(lines[-1]) if lines else {"outcome": "crash", "why": done.stderr[-300:]}


def cell(found: dict[str, Any]) -> str:
    if found["outcome"] not in ("equal", "differs"):
        return str(found["outcome"])
    counts = f"{found['graphs']}, {found['breaks']} ({found['passages']})"
    return counts if found["outcome"] == "equal" else f"{counts}: differs"


def table(rows: list[dict[str, Any]]) -> str:
    """A Markdown table: graphs and breaks of both sides."""
    shown = [row for row in rows if row["stator"]["outcome"] != "eager fails"]
    lines = [
        "Cells: graphs, places of breaks (times that a capture met one).",
        "",
        "| program | library | Stator | torch.compile |",
        "|---|---|---|---|",
    ]
    for row in sorted(shown, key=lambda row: (row["library"], row["name"])):
        cells = " | ".join(cell(row[side]) for side in SIDES)
        lines.append(f"| {row['name']} | {row['library']} {row['version']} | {cells} |")
    both = [row for row in shown if all(row[side]["outcome"] == "equal" for side in SIDES)]
    worse = [row["name"] for row in both if row[SIDES[0]]["breaks"] > row[SIDES[1]]["breaks"]]
    totals = {
        key: " against ".join(str(sum(row[side][key] for row in both)) for side in SIDES)
        for key in ("breaks", "passages")
    }
    equal = {side: sum(row[side]["outcome"] == "equal" for row in shown) for side in SIDES}
    libraries = len({row["library"] for row in shown})
    lines += [
        "",
        f"{len(shown)} programs of {libraries} libraries. Equal to eager: {equal['stator']} with Stator, "
        f"{equal['torch._dynamo']} with torch.compile. In the {len(both)} programs where both are: places of breaks "
        f"{totals['breaks']}, met {totals['passages']} times. Programs with more places of breaks than with "
        f"torch.compile: {', '.join(worse) or 'none'}.",
    ]
    return "\n".join(lines)


def version(library: str) -> str:
    names = importlib.metadata.packages_distributions().get(library, [])
    return importlib.metadata.version(names[0]) if names else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", help="comma-separated programs")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+", help="files of rows; the last row of a program counts")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one process")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SIDE"), help="measure in this process")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(*args.one)))
        return
    if args.table:
        known = [json.loads(line) for file in args.table for line in file.read_text().splitlines()]
        print(table(list({row["name"]: row for row in known}.values())))
        return
    wanted = args.names.split(",") if args.names else list(PROGRAMS)
    known = (
        [json.loads(line) for line in args.out.read_text().splitlines()]
        if args.out and args.out.exists()
        else []
    )
    rows = [row for row in known if not args.names or row["name"] not in wanted]
    for name in wanted:
        library = PROGRAMS[name].library
        if any(row["name"] == name for row in rows) or importlib.util.find_spec(library) is None:
            continue
        old: dict[str, Any] = next((row for row in known if row["name"] == name), {})
        row: dict[str, Any] = {"name": name, "library": library, "version": version(library)}
        for side in SIDES:
            again = side == "stator" or side not in old
            row[side] = spawn(name, side, args.limit) if again else old[side]
        rows.append(row)
        print(
            name,
            *[{key: row[side].get(key) for key in ("outcome", "graphs", "breaks", "why")} for side in SIDES],
            flush=True,
        )
        if args.out:
            args.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(table(rows))


if __name__ == "__main__":
    main()
