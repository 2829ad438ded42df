"""Events as text.

In: one event, or the events of a run.  Out: the lines that tell a user what happened and what to do about it.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable

from stator import events
from stator.errors import render_problem


@functools.singledispatch
def render(event: events.Event) -> str:
    """One event as text; the dataclass itself for an event that has no words of its own."""
    return repr(event)


@render.register
def _(event: events.CaptureStarted) -> str:
    return f"capture {event.name} ({event.file}:{event.line})"


@render.register
def _(event: events.CaptureFinished) -> str:
    return (
        f"captured {event.name}: {event.graph_nodes} graph nodes, {event.guards} guards, "
        f"{event.seconds * 1000:.1f} ms"
    )


@render.register
def _(event: events.CaptureProgress) -> str:
    return (f"capturing {event.name}: {event.seconds:.0f} s, {event.iterations:,} loop iterations, "
            f"{event.operations:,} graph nodes, at {event.filename}:{event.line}")


@render.register
def _(event: events.GraphBreak) -> str:
    problem = render_problem(
        event.code, event.title, event.cause, event.remedy, event.filename, event.line, event.stack
    )
    return f"graph break: {problem}"


@render.register
def _(event: events.Recompile) -> str:
    lines = [f"recompile {event.name}: {event.reason}"]
    if event.guard_text:
        lines.append(f"  guard: {event.guard_text}")
    if event.old or event.new:
        lines.append(f"  was {event.old or '?'}, is {event.new or '?'}")
    if event.filename is not None:
        lines.append(f"  guarded at {event.filename}:{event.line}")
    return "\n".join(lines)


@render.register
def _(event: events.EagerFallback) -> str:
    return f"eager {event.name}: {event.why}"


@render.register
def _(event: events.ProgramRaised) -> str:
    place = "" if event.line is None else f"\n  at {event.filename}:{event.line}"
    return f"eager {event.name}: the program raises {event.error}{place}"


@render.register
def _(event: events.InternalFailure) -> str:
    return (
        f"internal error in {event.name}: {type(event.error).__name__}: {event.error}\n"
        f"  this is a bug in Stator; the call is run eagerly unless the option 'strict' is on"
    )


@render.register
def _(event: events.CacheLimit) -> str:
    return (
        f"recompile limit: {event.name} was captured {event.limit} times, and calls that no entry accepts "
        f"now run eagerly\n  remedy: make what changes from call to call a tensor, mark the size dynamic, or "
        f"raise recompile_limit"
    )


@render.register
def _(event: events.BackendCompiled) -> str:
    return f"backend {event.backend}: {event.graph_nodes} graph nodes, {event.seconds * 1000:.1f} ms"


@render.register
def _(event: events.GraphShared) -> str:
    return f"backend {event.backend}: {event.graph_nodes} graph nodes, compiled before"


@render.register
def _(event: events.GraphCut) -> str:
    unique, total = sum(nodes for nodes, _ in event.pieces), sum(nodes * uses for nodes, uses in event.pieces)
    names = [f"{name}: " if name else "" for name in event.names] or [""] * len(event.pieces)
    pieces = ", ".join([f"{name}{nodes} nodes x{uses}"
                        for name, (nodes, uses) in zip(names, event.pieces, strict=True)])
    return "\n".join([f"regions: {len(event.pieces)} pieces compiled ({pieces}), {unique} of {total} nodes, in "
                      f"{sum(event.seconds):.2f} s; about {event.saved_seconds:.2f} s saved",
                      *[f"regions: no piece of its own: {why}" for why in event.refused]])


@render.register
def _(event: events.PiecesCompiled) -> str:
    return f"pieces: {event.done} of {event.pieces} compiled, {event.pieces - event.done} to go ({event.seconds:.1f} s)"


@render.register
def _(event: events.CompiledElsewhere) -> str:
    return f"start: another process {'failed on' if event.failure else 'has compiled'} {event.name} after " \
        f"{event.seconds:.1f} s{'; calls stay eager: ' + event.failure if event.failure else ''}"


@render.register
def _(event: events.SwappedIn) -> str:
    return f"start: {event.name} runs compiled from now on, after {event.eager_calls} eager calls " \
        f"(swapped in within {event.seconds:.2f} s)"


@render.register
def _(event: events.GraphKeptWhole) -> str:
    return f"regions: {event.graph_nodes} nodes compiled whole: {event.why}"


@render.register
def _(event: events.Effects) -> str:
    return "\n".join([f"effects of {event.name}:", *(f"  {effect}" for effect in event.effects)])


@render.register
def _(event: events.ResumeCode) -> str:
    return f"resume code of {event.name}: {len(event.code.co_code)} bytes"


@render.register
def _(event: events.LineTraced) -> str:
    return f"trace {event.filename}:{event.line} in {event.function}"


def summarize(log: Iterable[events.Event]) -> str:
    """The totals of a run, and each different graph break and recompile with how often it happened."""
    seen = list(log)
    captures = [event for event in seen if isinstance(event, events.CaptureFinished)]
    breaks = collections.Counter(event for event in seen if isinstance(event, events.GraphBreak))
    recompiles = collections.Counter(event for event in seen if isinstance(event, events.Recompile))
    fallbacks = sum(isinstance(event, events.EagerFallback) for event in seen)
    lines = [
        f"{len(captures)} captures, {sum(event.graph_nodes for event in captures)} graph nodes, "
        f"{sum(event.guards for event in captures)} guards, "
        f"{sum(event.seconds for event in captures):.2f} s; "
        f"{breaks.total()} graph breaks, {recompiles.total()} recompiles, {fallbacks} eager calls"
    ]
    for counter in (breaks, recompiles):
        for event, times in counter.most_common():
            lines.append(f"{times}x {render(event)}")
    failures = (events.InternalFailure, events.CacheLimit)
    lines.extend(render(event) for event in seen if isinstance(event, failures))
    return "\n".join(lines)
