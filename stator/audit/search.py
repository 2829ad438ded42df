"""Find what makes a compiled call differ.   Trials, the compiled function, settings  ->  a Finding, or None

The question is halved by compiling the call again: right when compiled afresh, the entry in use lacks a guard; right
with backend "eager", the backend is wrong about an operation; else the capture is, about an effect or the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import fx

from stator.audit.finding import Finding
from stator.audit.graphs import Segments, place_of_node, smallest_wrong
from stator.audit.likeness import Outcome
from stator.audit.repro import call_script, graph_script
from stator.audit.trials import Trials, is_exact
from stator.capture import miss
from stator.settings.options import Settings

Differences = list[tuple[str, str]]


def bisect_call(entry: object, fn: Callable[..., Any], settings: Settings, args: tuple[Any, ...],
                kwargs: dict[str, Any], directory: str | None = None) -> Finding | None:
    """Search one call; the state of the program is as before afterwards."""
    trials = Trials(fn, args, kwargs, is_exact(settings.backend))
    finding = search(trials, entry, settings)
    if finding is not None and directory is not None and finding.script:
        finding.path = write_script(finding, directory)
    return finding


def search(trials: Trials, entry: Any, settings: Settings) -> Finding | None:
    """`entry` is the compiled function in use, or None."""
    eager = trials.run(trials.fn)
    if trials.unrepeatable:
        return Finding("program", f"{trials.unrepeatable} must not run twice, so nothing can be compared", [])
    itself = trials.compare(eager, trials.run(trials.fn))
    if itself:
        return Finding("program", "the program does not do the same twice, so nothing can be compared", itself)
    installed = trials.compare(eager, trials.run(entry)) if entry is not None else []
    fresh = miss.make_entry(trials.fn, settings)
    again = trials.compare(eager, trials.run(fresh))
    if not again:
        return missing_guard(trials, entry, fresh, installed) if installed else None
    plain = trials.run(miss.make_entry(trials.fn, replace(settings, backend="eager", mode=None, options={})))
    of_capture = trials.compare(eager, plain)
    if of_capture:
        return wrong_capture(trials, settings, eager, plain, of_capture)
    return wrong_operation(trials, settings, again)


# ---------------------------------------------------------------------- guards


def tags_of(entry: Any) -> list[Any]:
    points = entry._stator_site.points
    return [tag for each in (entry, *points.entries()) for _, _, tag in each.entries() if tag is not None]


def missing_guard(trials: Trials, entry: object, fresh: object, differences: Differences) -> Finding:
    """The first fact that a new capture guards and the entry in use does not."""
    script = call_script(trials, "A call that used an entry which an earlier call had made: make that one first.")
    known = {(guard.source, guard.kind) for tag in tags_of(entry) for guard in tag.guards}
    for tag in tags_of(fresh):
        for guard in tag.guards:
            if (guard.source, guard.kind) not in known:
                place = guard.where or (None, None)
                return Finding("guard", f"an entry was used for a call it does not fit: no guard says {guard.text()}",
                               differences, place[0], place[1], script=script)
    return Finding("guard", "an entry was used for a call it does not fit; compiled afresh the call is right",
                   differences, script=script)


# ---------------------------------------------------------------------- the backend


def wrong_operation(trials: Trials, settings: Settings, differences: Differences) -> Finding:
    segments = Segments(settings)
    trials.run(miss.make_entry(trials.fn, replace(settings, backend=segments, mode=None, options={})))
    for graph, inputs in segments.found:
        found = smallest_wrong(graph, inputs, settings, trials.exact)
        if found is not None:
            node, smallest, given = found
            place = place_of_node(node) or (None, None)
            count = sum(each.op.startswith("call") for each in smallest.graph.nodes)
            name = "a graph of several operations" if node is None else target_name(node)
            what = f"the backend {settings.backend_name!r} gets {name} wrong" + ("" if count == 1 else
                                                                               f", in a graph of {count} operations")
            return Finding("operation", what, differences, place[0], place[1], smallest, given,
                           graph_script(smallest, given, settings))
    what = f"results are wrong with the backend {settings.backend_name!r}; no graph of it is wrong by itself"
    return Finding("result", what, differences, script=call_script(trials))


def target_name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


# ---------------------------------------------------------------------- the capture


def wrong_capture(trials: Trials, settings: Settings, eager: Outcome, captured: Outcome,
                  differences: Differences) -> Finding:
    """The capture itself: something it does not do, or something it computes otherwise."""
    path = differences[0][0]
    effects = [where for where, _ in differences if not where.startswith(("the result", "the exception"))]
    place = None
    if "the printed text" in effects:
        same = len(os.path.commonprefix([eager.printed[0], captured.printed[0]]))
        path, place = "the printed text", trials.line_that_prints(same)
    elif effects:
        path = effects[0]
        place = trials.line_that_changes(path)
    kind = "effect" if effects else "result"
    what = f"the capture does something else to {path}" if effects else f"the capture computes another {path[4:]}"
    filename, line = place or (None, None)
    if place is None and not effects:
        code = getattr(trials.fn, "__func__", trials.fn).__code__
        filename, line = code.co_filename, code.co_firstlineno
    return Finding(kind, what, differences, filename, line, script=call_script(trials))


def write_script(finding: Finding, directory: str) -> str:
    """A new file, readable by its owner alone: it holds the program's data."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    for number in range(1000):
        path = os.path.join(directory, f"repro_{finding.kind}_{number}.py")
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(handle, "w") as file:
            file.write(finding.script)
        return path
    raise OSError(f"{directory} holds a thousand scripts already")
