"""Run the scenarios on two ranks and print the table.   python -m tests.ranks.divergence_table [--quick] [--page] [names]

In: scenarios (`divergence_scenarios.py`).  Out: for each whether the ranks reported a divergence, the seconds from its
cause to the report of the later rank, and whether the report has both lines, the branch, the guard and the remedy.
Each scenario is a pair of forked processes, which end with the report.  Both are ended after a deadline, whatever they do:
a rank that gloo aborts, that stops, or that keeps the interpreter's lock is an error with its exit status and its threads.
With `--page` the table goes into docs/ranks.md.
"""

from __future__ import annotations

import datetime
import faulthandler
import gc
import importlib
import inspect
import json
import os
import re
import signal
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

PAGE = Path(__file__).parents[2] / "docs" / "ranks.md"
MARKS = ("<!-- written by python -m tests.ranks.divergence_table --page -->\n", "<!-- end -->")
SECONDS = 60.0  # of one scenario
LINGER = 1.5  # behind a scenario that should not report
GRACE = 15.0  # of a rank whose time is over, or whose peer has died
Result = dict[str, Any]


def run(scenario: Scenario, seconds: float = SECONDS) -> list[Result]:
    """One scenario on two ranks; what each of them found.  It takes at most `seconds`, twice GRACE and a moment."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(2):
            child = os.fork()
            if child == 0:
                _on_rank(scenario, rank, Path(folder), seconds)
            children.append(child)
        ends = ended(children, seconds + GRACE)
        return [_result(Path(folder), rank, end) for rank, end in enumerate(ends)]


def ended(children: list[int], seconds: float) -> list[int | None]:
    """Exit codes of processes, as of `subprocess`; None for one that was killed because it did not end."""
    found: dict[int, int] = {}
    due = time.monotonic() + seconds
    asked = False
    while len(found) < len(children):
        for child in children:
            if child not in found:
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    found[child] = os.waitstatus_to_exitcode(status)
                    if found[child] < 0:  # its peer notices, or does not
                        due = min(due, time.monotonic() + GRACE)
        left = [child for child in children if child not in found]
        if left and time.monotonic() > due:
            for child in left:
                os.kill(child, signal.SIGKILL if asked else signal.SIGUSR1)
            if asked:
                for child in left:
                    os.waitpid(child, 0)
                break
            asked, due = True, time.monotonic() + 1.0  # faulthandler writes its threads
        time.sleep(0.01)
    return [found.get(child) for child in children]


def _result(folder: Path, rank: int, end: int | None) -> Result:
    path, threads = folder / f"result{rank}", folder / f"threads{rank}"
    if path.exists():
        return dict(json.loads(path.read_text()))
    shown = threads.read_text() if threads.exists() else ""
    return {"error": f"rank {rank} was killed, for it did not end" if end is None else
            f"rank {rank} ended by {signal.Signals(-end).name}" if end < 0 else
            f"rank {rank} ended with {end} and without a result", "threads": shown}


def _on_rank(scenario: Scenario, rank: int, folder: Path, seconds: float) -> None:
    """Run one rank, and end the process."""
    faulthandler.register(signal.SIGUSR1, (folder / f"threads{rank}").open("w"))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    warnings.simplefilter("ignore")
    result: Result = {"reports": [], "error": ""}
    words = dist.FileStore(f"{folder}/words", 2)

    def leave() -> None:
        partial = folder / f"partial{rank}"
        partial.write_text(json.dumps(result | {"cause": times[0] if times else 0.0}))
        partial.rename(folder / f"result{rank}")
        words.set(f"done{rank}", "")
        end = time.monotonic() + GRACE
        while time.monotonic() < end and not words.check([f"done{1 - rank}"]):
            time.sleep(0.01)
        os._exit(0)

    def on_event(event: events.Event) -> None:
        if isinstance(event, RankDivergence):
            result["reports"].append({"seconds": time.time(), "text": event.text(), "mine": event.mine.line, "branch":
                                      event.branch, "guard": event.guard, "remedy": event.remedy})
            leave()

    def give_up() -> None:
        time.sleep(seconds)
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
            time.sleep(seconds)  # it did not hang; the report comes, or nothing does
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
    leave()


def judged(scenario: Scenario, results: list[Result]) -> Result:
    """Judge a pair of results."""
    reports = [report for each in results for report in each.get("reports", [])]
    errors = [text for each in results for text in (each.get("error"), each.get("threads")) if text]
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
    print(table(rows))
    for name, row in rows.items():
        if not row["right"] or "-v" in sys.argv:
            print(name, *row["texts"], sep="\n    ")
    if "--page" in sys.argv:
        whole = re.compile(f"(?<={re.escape(MARKS[0])}).*?(?={re.escape(MARKS[1])})", re.DOTALL)
        PAGE.write_text(whole.sub(lambda _: table(rows) + "\n", PAGE.read_text(), count=1))


def table(rows: dict[str, Result]) -> str:
    """The tables of scenarios that diverge and of those that do not, and a line that counts."""
    lines = ["| scenario | reported on both ranks | seconds | lines | branch | guard | remedy |", "|---|---|---|---|---|---|---|"]
    diverging, together = ([name for name in each if name in rows] for each in (DIVERGING, SYMMETRIC))
    for name in diverging:
        row = rows[name]
        lines.append(f"| {name} | {_yes(row['reported'])} | {row['seconds']:.2f} | " + " | ".join(
            _yes(row[part]) for part in ("lines", "branch", "guard", "remedy")) + " |")
    lines += ["", "| symmetric | no report |", "|---|---|", *(f"| {name} | {_yes(rows[name]['right'])} |" for name in together)]
    late = sum(rows[name]["seconds"] > 1.0 for name in diverging)
    return "\n".join([*lines, "", f"{sum(row['right'] for row in rows.values())} of {len(rows)} right; {late} reported later "
                      f"than 1 s ({os.cpu_count()} cores, load {os.getloadavg()[0]:.0f})."])


def _yes(value: bool) -> str:
    return "yes" if value else "no"


if __name__ == "__main__":
    main()
