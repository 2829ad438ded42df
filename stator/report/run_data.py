"""The facts of one run as plain data, for the page and for `--json`.

In: events with the time of each, what the breaks cost, and how often entries were used.
Out: a dict of numbers, strings and lists: `to_json` writes it down, `report.page` shows it, `stator.cli` compares it.
"""

from __future__ import annotations

import contextlib
import linecache
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stator import events
from stator.errors import UserFrame
from stator.report.families import fold
from stator.report.frames import is_library, name_of, source_line, user_frames
from stator.report.misses import change, nearest
from stator.report.names import short, translate, user_lines
from stator.report.text import graph_line, held_by, render, symbolic_inputs, user_line, user_place

if TYPE_CHECKING:
    from torch import fx

VERSION = 1
MOST_GRAPHS, MOST_NODES, MOST_GUARDS, MOST_LINES = 300, 4000, 400, 3000
Json = dict[str, Any]


@dataclass
class Recording:
    """Events with the seconds since the start."""

    started: float = field(default_factory=time.perf_counter)
    rows: list[tuple[float, events.Event]] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)  # (seconds, peak of resident bytes)
    calls: list[tuple[float, int]] = field(default_factory=list)  # (seconds, calls of compiled functions so far)
    seconds: float = 0.0

    def add(self, event: events.Event) -> None:
        now = time.perf_counter() - self.started
        self.rows.append((now, event))
        if isinstance(event, (events.CaptureFinished, events.BackendCompiled)):
            self.memory.append((now, peak_bytes()))

    @property
    def log(self) -> list[events.Event]:
        return [event for _, event in self.rows]


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Record events of all threads while the block runs."""
    found = Recording()
    stop = events.subscribe(found.add)
    try:
        yield found
    finally:
        stop()
        found.seconds = time.perf_counter() - found.started


def peak_bytes() -> int:
    """The largest resident size of the process so far; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


@dataclass(frozen=True)
class Price:
    """Cost of one break: how often it was passed, microseconds of its instruction, and what breaking adds."""

    event: events.GraphBreak
    passages: int
    native: float
    added: float


EagerCall = tuple[events.EagerFallback, float]  # of a call that ran eagerly: its event, and its seconds


def run_data(run: Recording, title: str, prices: Sequence[Price] = (), sites: Sequence[Json] = (),
             error: str = "", eager: Sequence[EagerCall] = ()) -> Json:
    """Everything that a page or a check needs to know about a run."""
    data: Json = {"version": VERSION, "title": title, "seconds": run.seconds, "error": error, "sites": list(sites),
                  "remedies": []}
    data["captures"] = [_capture(at, event) for at, event in run.rows if isinstance(event, events.CaptureFinished)]
    for capture in data["captures"][MOST_GRAPHS:]:
        capture["nodes"] = capture["guards"] = []
    data["breaks"] = _breaks(run, prices)
    data["recompiles"] = _recompiles(run)
    data["eager"] = _eager(run, eager)
    data["compiles"] = [{"t": at, "backend": event.backend, "nodes": event.graph_nodes, "seconds": event.seconds}
                        for at, event in run.rows if isinstance(event, events.BackendCompiled)]
    data["regions"] = [render(event) for event in run.log
                       if isinstance(event, (events.GraphCut, events.GraphKeptWhole))]
    data["memory"] = [{"t": at, "bytes": size} for at, size in run.memory]
    data["calls"] = [{"t": at, "calls": count} for at, count in run.calls]
    data["events"] = [row for at, event in run.rows if (row := _row(at, event)) is not None]
    data["sources"] = _sources(data)
    return data


def _row(at: float, event: events.Event) -> Json | None:
    """One line of the timeline."""
    if isinstance(event, (events.LineTraced, events.ResumeCode, events.CaptureProgress)):
        return None
    place = user_place(event) if isinstance(event, events.GraphBreak) else (
        getattr(event, "filename", None) or getattr(event, "file", None), getattr(event, "line", None))
    took = getattr(event, "seconds", 0.0)
    return {"t": at, "kind": type(event).__name__, "text": render(event).partition("\n")[0],
            "seconds": took if isinstance(took, float) else 0.0, "file": (place or (None, None))[0],
            "line": (place or (None, None))[1]}


def _capture(at: float, event: events.CaptureFinished) -> Json:
    found: Json = {"t": at, "name": short(event.name), "graph_nodes": event.graph_nodes, "guard_count": event.guards,
                   "seconds": event.seconds, "guard_us": event.guard_microseconds, "operations": 0, "sizes": [],
                   "nodes": [], "input_bytes": 0, "made_bytes": 0, "residual": event.residual_source}
    line_of, families = user_lines(event.guard_list), fold(event.guard_list, event.kind_microseconds)
    found["families"] = [{"title": each.title, "count": len(each.guards), "us": each.microseconds or 0.0}
                         for each in families]
    found["guards"] = [{"family": family.title, "text": translate(guard.text(), event.terms),
                        "file": (place := line_of(guard) or (None, None))[0], "line": place[1]}
                       for family in families for guard in family.guards[:MOST_GUARDS]]
    if event.graph is not None:
        nodes = list(event.graph.graph.nodes)
        found["operations"] = sum(node.op.startswith("call_") for node in nodes)
        found["sizes"] = [translate(text, event.terms) for text in symbolic_inputs(event.graph)]
        found["nodes"] = [_node(node, event.terms) for node in nodes[:MOST_NODES]]
        found["input_bytes"] = sum(bytes_of(node) for node in nodes if node.op == "placeholder")
        found["made_bytes"] = sum(bytes_of(node) for node in nodes if node.op.startswith("call_"))
    return found


def _node(node: fx.Node, terms: events.Terms) -> Json:
    file, line = place_of(node)
    return {"name": node.name, "text": translate(graph_line(node), terms), "holds": held_by(node), "file": file,
            "line": line}


def place_of(node: fx.Node) -> tuple[str | None, int | None]:
    """The user's line of a node: the innermost one outside torch, else the innermost."""
    frames = [UserFrame(*user_line(text)) for text in (node.meta.get("stack_trace") or "").splitlines()
              if text.strip().startswith("File ")]
    return user_frames(frames)[-1][:2] if frames else (None, None)


def bytes_of(node: fx.Node) -> int:
    """The bytes of a node's tensor; 0 for what is no tensor or has a size that varies."""
    value = node.meta.get("example_value")
    shape = getattr(value, "shape", None)
    if shape is None or not all(type(size) is int for size in shape) or not hasattr(value, "dtype"):
        return 0
    count = 1
    for size in shape:
        count *= size
    return count * int(value.dtype.itemsize)


def _breaks(run: Recording, prices: Sequence[Price]) -> list[Json]:
    """One row for each line that breaks: its root, how often it happened, and its price."""
    found: dict[Any, Json] = {}
    for at, event in run.rows:
        if not isinstance(event, events.GraphBreak):
            continue
        place = user_place(event)
        key = place if place is not None else event.cause
        row = found.get(key)
        if row is None:
            frames = user_frames(event.stack)
            row = found[key] = {
                "t": at, "code": event.code, "title": event.title, "cause": event.cause, "remedy": event.remedy,
                "file": place[0] if place else None, "line": place[1] if place else None, "count": 0, "passages": 0,
                "native_us": 0.0, "added_us": 0.0, "follow": [],
                "stack": [{"file": frame.filename, "line": frame.line, "name": name_of(frame)} for frame in frames],
                "full": [f"{frame.filename}:{frame.line} in {frame.function}" for frame in event.stack]}
        row["count"] += 1
        if event.cause != row["cause"] and event.cause not in row["follow"]:
            row["follow"].append(event.cause)
    for price in prices:
        place = user_place(price.event)
        row = found.get(place if place is not None else price.event.cause)
        if row is not None and price.passages:
            both = row["passages"] + price.passages
            for name, each in (("native_us", price.native), ("added_us", price.added)):
                row[name] = (row[name] * row["passages"] + each * price.passages) / both
            row["passages"] = both
    return sorted(found.values(), key=lambda row: -row["passages"] * row["added_us"])


def _recompiles(run: Recording) -> list[Json]:
    """Misses in their order; the price of each is the capture that follows it, and the guards that it adds."""
    found: list[Json] = []
    waiting: dict[str, Json] = {}
    for at, event in run.rows:
        if isinstance(event, events.Recompile):
            found.append(_recompile(at, event))
            waiting[event.name] = found[-1]
        elif isinstance(event, events.CaptureStarted) and event.name in waiting:
            row = waiting[event.name]
            row["seconds"] = row["seconds"] or at - row["t"]
        elif isinstance(event, events.CaptureFinished) and event.name in waiting:
            row = waiting.pop(event.name)
            row.update(seconds=row["seconds"] + event.seconds, guard_us=event.guard_microseconds)
    return found


def _eager(run: Recording, timed: Sequence[EagerCall]) -> list[Json]:
    """One row for each cause of eager calls: how many, how many of them were timed, and their seconds."""
    found: dict[tuple[object, ...], Json] = {}
    for at, event in run.rows:
        if isinstance(event, events.EagerFallback):
            row = found.setdefault(_eager_key(event), {
                "t": at, "name": short(event.name), "why": event.why, "file": event.filename, "line": event.line,
                "count": 0, "timed": 0, "seconds": 0.0})
            row["count"] += 1
    for event, took in timed:
        row = found[_eager_key(event)]
        row["timed"], row["seconds"] = row["timed"] + 1, row["seconds"] + took
    return sorted(found.values(), key=lambda row: -row["seconds"])


def _eager_key(event: events.EagerFallback) -> tuple[object, ...]:
    return event.name, event.why, event.filename, event.line


def _recompile(at: float, event: events.Recompile) -> Json:
    misses = [nearest(event), *event.others]
    return {"t": at, "name": short(event.name), "file": event.filename, "line": event.line, "seconds": 0.0,
            "guard_us": 0.0,
            "entries": [{"cause": change(miss, event.terms), "guard": translate(miss.guard_text, event.terms),
                         "old": miss.old, "new": miss.new, "more": miss.more, "file": miss.filename,
                         "line": miss.line} for miss in misses]}


def _sources(data: Json) -> Json:
    """The text of the user's files that the rows refer to."""
    rows = [*data["events"], *data["breaks"], *data["recompiles"], *(frame for row in data["breaks"]
            for frame in row["stack"]), *(node for capture in data["captures"] for node in capture["nodes"])]
    wanted = dict.fromkeys(row["file"] for row in rows if row["file"])
    found = {}
    for file in wanted:
        if not is_library(file) and source_line(file, 1) + source_line(file, 2):
            found[file] = [line.rstrip("\n") for line in linecache.getlines(file)[:MOST_LINES]]
    return found
