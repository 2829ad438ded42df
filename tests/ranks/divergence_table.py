"""Run the scenarios on two ranks and print the table.   python -m tests.ranks.divergence_table [--quick] [names]

In: scenarios (`divergence_scenarios.py`).  Out: for each whether the ranks reported a divergence, the seconds from its
cause to the report of the later rank, and whether the report has both lines, the branch, the guard and the remedy.
Each scenario is a pair of forked processes, which end with the report.
"""

from __future__ import annotations

import datetime
import gc
import importlib
import inspect
import json
import os
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import stator
from stator import events
from stator.ranks.divergence import RankDivergence
from tests.ranks.divergence_scenarios import DIVERGING, SYMMETRIC, Scenario, times

SECONDS = 60.0  # of one scenario
LINGER = 1.5  # behind a scenario that should not report
Result = dict[str, Any]


def run(scenario: Scenario) -> list[Result]:
    """One scenario on two ranks; what each of them found."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(2):
            child = os.fork()
            if child == 0:
                _on_rank(scenario, rank, Path(folder))
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        results = [Path(folder, f"result{rank}") for rank in range(2)]
        return [json.loads(each.read_text()) if each.exists() else {"error": "no result"} for each in results]


def _on_rank(scenario: Scenario, rank: int, folder: Path) -> None:
    """Run one rank, and end the process."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    warnings.simplefilter("ignore")
    result: Result = {"reports": [], "error": ""}
    words = dist.FileStore(f"{folder}/words", 2)

    def leave() -> None:
        partial = folder / f"partial{rank}"
        partial.write_text(json.dumps(result | {"cause": times[0] if times else 0.0}))
        partial.rename(folder / f"result{rank}")
        words.set(f"done{rank}", "")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not words.check([f"done{1 - rank}"]):
            time.sleep(0.01)
        os._exit(0)

    def on_event(event: events.Event) -> None:
        if isinstance(event, RankDivergence):
            result["reports"].append({"seconds": time.time(), "text": event.text(), "mine": event.mine.line, "branch":
                                      event.branch, "guard": event.guard, "remedy": event.remedy})
            leave()

    def give_up() -> None:
        time.sleep(SECONDS)
        result["error"] = "it hangs, and nothing is reported"
        leave()

    events.subscribe(on_event)
    threading.Thread(target=give_up, daemon=True).start()
    try:
        store = dist.FileStore(f"{folder}/store", 2)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=90))
        scenario.body(rank)
        if scenario.name in SYMMETRIC:
            time.sleep(LINGER)
        else:
            time.sleep(SECONDS)  # it did not hang; the report comes, or nothing does
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
    leave()


def judged(scenario: Scenario, results: list[Result]) -> Result:
    """Judge a pair of results."""
    reports = [report for each in results for report in each.get("reports", [])]
    errors = [each["error"] for each in results if each.get("error")]
    if scenario.name in SYMMETRIC:
        return {"right": not reports and not errors, "texts": [*errors, *(each["text"] for each in reports)]}
    source, first = inspect.getsourcelines(scenario.body)
    marks = {mark: [first + number for number, line in enumerate(source) if f"# {mark}" in line]
             for mark in ("rank 0", "rank 1", "branch")}
    here = f"{Path(inspect.getfile(scenario.body)).name}:"
    due = max(each.get("cause", 0.0) for each in results)
    found = {
        "reported": len(reports) == 2,
        "lines": bool(reports) and all(f"{here}{line}" in each["text"] for each in reports
                                       for mark in ("rank 0", "rank 1") for line in marks[mark]),
        "branch": all(f"{here}{line}" in each["branch"] for each in reports for line in marks["branch"]),
        "guard": all(scenario.guard in each["guard"] for each in reports),
        "remedy": all(scenario.remedy in each["remedy"] and each["remedy"] for each in reports),
    }
    seconds = max((each["seconds"] - due for each in reports), default=float("inf"))
    return {**found, "seconds": seconds, "right": all(found.values()), "texts": [*errors, *(e["text"] for e in reports)]}


def main() -> None:
    given = [name for name in sys.argv[1:] if not name.startswith("-")]
    stator.compile(lambda x: x + 1, backend="eager")(torch.ones(2))  # loads the tracer before the forks
    importlib.import_module("torch.distributed._functional_collectives")
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of its parent
    rows: dict[str, Result] = {}
    for scenario in (*DIVERGING.values(), *SYMMETRIC.values()):
        if scenario.name in given if given else scenario.quick or "--quick" not in sys.argv:
            rows[scenario.name] = judged(scenario, run(scenario))
    if "--json" in sys.argv:
        print(json.dumps(rows))
        return
    print("| scenario | reported on both ranks | seconds | lines | branch | guard | remedy |\n|---|---|---|---|---|---|---|")
    for name in DIVERGING.keys() & rows.keys():
        row = rows[name]
        print(f"| {name} | {row['reported']} | {row['seconds']:.2f} | " + " | ".join(
            str(row[part]) for part in ("lines", "branch", "guard", "remedy")) + " |")
    print("\n| symmetric | no report |\n|---|---|")
    for name in SYMMETRIC.keys() & rows.keys():
        print(f"| {name} | {rows[name]['right']} |")
    for name, row in rows.items():
        if not row["right"] or "-v" in sys.argv:
            print(name, *row["texts"], sep="\n    ")
    late = sum(rows[name]["seconds"] > 1.0 for name in DIVERGING.keys() & rows.keys())
    print(f"\n{sum(row['right'] for row in rows.values())} of {len(rows)} right; {late} reported later than 1 s")


if __name__ == "__main__":
    main()
