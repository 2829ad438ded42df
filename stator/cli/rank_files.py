"""Ranks of one run side by side.   torchrun --nproc-per-node 4 -m stator report train.py  ->  one page, four columns

In: the facts of one rank.  Out: a file beside the page for each rank; the facts of all ranks that have written theirs.
Each rank writes the page anew when it ends, so that the last one leaves the page of all.
"""

from __future__ import annotations

import collections
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stator import events

WHOLE_RANKS = 8  # further ones are shown by their numbers alone
DETAILS = ("captures", "breaks", "recompiles", "eager", "compiles", "regions", "memory", "calls", "events", "sites",
           "remedies")


def this_rank() -> int | None:
    """The rank of this process, where a launcher has started several."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or not os.environ.get("RANK", "").isdigit():
        return None
    return int(os.environ["RANK"])


def run_id() -> str:
    """Equal for all ranks of one launch: files of an earlier one are left out."""
    nodes = os.environ.get("LOCAL_WORLD_SIZE") != os.environ["WORLD_SIZE"]
    launch = os.environ.get("TORCHELASTIC_RUN_ID", "") if nodes else str(os.getppid())
    return f"{launch} {os.environ.get('MASTER_PORT', '')} {os.environ['WORLD_SIZE']}"


def summary(data: dict[str, Any], log: Iterable[events.Event]) -> dict[str, Any]:
    """The numbers of one rank that are compared."""
    captures = data["captures"]

    def counts(rows: Iterable[tuple[str, int]]) -> dict[str, int]:
        found: collections.Counter[str] = collections.Counter()
        for name, number in rows:
            found[name] += number
        return dict(found)

    return {"graphs": sum(bool(each["graph_nodes"]) for each in captures),
            "operations": sum(each["operations"] for each in captures),
            "guards": sum(each["guard_count"] for each in captures),
            "capture_seconds": sum(each["seconds"] for each in captures),
            "calls": data["calls"][-1]["calls"] if data["calls"] else 0,
            "peak_bytes": data["memory"][-1]["bytes"] if data["memory"] else 0,
            "functions": counts((each["name"], each["calls"]) for each in data["sites"] if each["starts"]),
            "breaks": counts((f"{each['code']} {each['cause']}, at {place(each)}", each["count"])
                             for each in data["breaks"]),
            "recompiles": counts((f"{each['name']}: {each['entries'][0]['cause'].partition(' was ')[0]}, at "
                                  f"{place(each)}", 1) for each in data["recompiles"]),
            "eager": counts((f"{each['name']}: {each['why'].partition(chr(10))[0]}", each["count"])
                            for each in data["eager"]),
            "collectives": counts((text, 1) for text in collectives(log))}


def place(row: dict[str, Any]) -> str:
    return f"{os.path.basename(row['file'] or '?')}:{row['line']}"


def collectives(log: Iterable[events.Event]) -> list[str]:
    module = sys.modules.get("stator.ranks.launches")  # loaded with the first capture
    return [] if module is None else [
        call.text() for event in log if isinstance(event, events.CaptureFinished) and event.graph is not None
        for call in module.collectives_of(event.graph.graph)]


def put_beside(page: Path, data: dict[str, Any], rank: int, log: Iterable[events.Event]) -> dict[str, Any]:
    """Write the facts of this rank beside the page; returns those of all ranks so far."""
    data |= {"rank": rank, "run": run_id(), "summary": summary(data, log)}
    write_whole(page.with_suffix(f".rank{rank}.json"), json.dumps(data, default=str))
    found = []
    for file in page.parent.glob(f"{page.stem}.rank*.json"):
        other = json.loads(file.read_text(encoding="utf-8"))
        if other["run"] == data["run"]:
            found.append(other)
    found.sort(key=lambda each: each["rank"])
    for other in found[WHOLE_RANKS:]:
        other.update(dict.fromkeys(DETAILS, []), sources={})
    return {"title": data["title"], "version": data["version"], "ranks": found}


def write_whole(path: Path, text: str) -> None:
    """Write a file that no other rank reads half."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
