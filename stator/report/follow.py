"""Print events as they happen.

In: the kinds of events to show, from a call or from STATOR_LOG.  Out: their text on a stream.

    STATOR_LOG=breaks,recompiles python train.py
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TextIO

from stator import events
from stator.errors import OptionValueError
from stator.options import list_accepted
from stator.report.text import render

KINDS: dict[str, tuple[type[events.Event], ...]] = {
    "captures": (events.CaptureStarted, events.CaptureFinished),
    "breaks": (events.GraphBreak, events.EagerFallback),
    "recompiles": (events.Recompile, events.CacheLimit),
    "backends": (events.BackendCompiled,),
    "effects": (events.Effects,),
    "failures": (events.InternalFailure,),
    "all": (events.Event,),
    "graphs": (events.CaptureFinished,),
    "sources": (events.CaptureFinished,),
}


def follow(kinds: Iterable[str] = ("all",), stream: TextIO | None = None) -> Callable[[], None]:
    """Print events of these kinds until the returned function is called; the stream is stderr by default."""
    chosen = tuple(kinds)
    for kind in chosen:
        if kind not in KINDS:
            raise OptionValueError(f"log {kind!r} is not accepted{list_accepted(kind, KINDS)}")
    shown = tuple({each for kind in chosen for each in KINDS[kind]})

    def show(event: events.Event) -> None:
        if not isinstance(event, shown):
            return
        lines = [render(event)]
        if isinstance(event, events.CaptureFinished):
            if "graphs" in chosen and event.graph is not None:
                lines.append(str(event.graph.graph))
            if "sources" in chosen and event.residual_source:
                lines.append(event.residual_source)
        text = "\n".join(lines).replace("\n", "\n        ")
        # stderr is looked up late, because it may be redirected while the program runs.
        print(f"stator: {text}", file=stream if stream is not None else sys.stderr)

    return events.subscribe(show)


def follow_environment() -> None:
    """Do what the environment variable STATOR_LOG asks for."""
    kinds = [kind.strip() for kind in os.environ.get("STATOR_LOG", "").split(",") if kind.strip()]
    if kinds:
        follow(kinds)
