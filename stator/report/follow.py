"""Print events as they happen.

In: names of logs, from `stator.set_logs` or from STATOR_LOGS.  Out: their text on a stream, in colour on a terminal.

    STATOR_LOGS=graph_breaks,recompiles python train.py
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from stator import events
from stator.errors import OptionTypeError, OptionValueError
from stator.report.misses import subject_of
from stator.report.names import short, translate, user_lines
from stator.report.text import (
    disassembled,
    effects_of,
    graph_code,
    graph_sizes,
    render,
    symbolic_inputs,
    user_place,
)
from stator.settings.options import list_accepted, require_bool
from stator.settings.process_config import config

Block = tuple[str, str]  # (text, language for colours: "", "python")


def _text(event: events.Event) -> Block:
    return render(event), ""


def _of_graph(title: str, text_of: Callable[[Any], str], language: str) -> Callable[..., Block | None]:
    return lambda event: None if event.graph is None else (
        f"{title} {short(event.name)}\n{text_of(event.graph)}", language)


def _guards(event: events.CaptureFinished) -> Block:
    line_of = user_lines(event.guard_list)
    lines = [translate(guard.text(), event.terms) + (f"   # {place[0]}:{place[1]}" if (place := line_of(guard)) else "")
             for guard in event.guard_list]
    return "\n".join([f"guards of {short(event.name)}", *lines]), ""


def _effects(event: events.CaptureFinished) -> Block | None:
    found = effects_of(event.residual_source)
    return ("\n".join([f"effects of {short(event.name)}", *found]), "python") if found else None


def _bytecode(event: events.Event) -> Block | None:
    if isinstance(event, events.ResumeCode):
        return f"resume code of {event.name}\n{disassembled(event.code)}", ""
    if isinstance(event, events.CaptureFinished):
        return f"residual program of {short(event.name)}\n{event.residual_source}", "python"
    return None


def _dynamic(event: events.CaptureFinished) -> Block | None:
    inputs = [] if event.graph is None else symbolic_inputs(event.graph)
    if not inputs:
        return None
    names = {name for text in inputs for name in _symbols_in(text)}
    facts = [guard.text() for guard in event.guard_list if names & set(_symbols_in(guard.text()))]
    return "\n".join([f"symbolic in {short(event.name)}", *inputs, *(f"where {fact}" for fact in facts)]), ""


def _symbols_in(text: str) -> list[str]:
    cleaned = "".join(letter if letter.isalnum() else " " for letter in text)
    return [word for word in cleaned.split() if word[0] in "su" and word[1:].isdigit()]


_FINISHED = (events.CaptureFinished,)
# Log -> the events it shows, and how.
LOGS: dict[str, tuple[tuple[type[events.Event], ...], Callable[..., Block | None]]] = {
    "graph_breaks": ((events.GraphBreak, events.EagerFallback), _text),
    "graph_code": (_FINISHED, _of_graph("graph of", graph_code, "python")),
    "graph_sizes": (_FINISHED, _of_graph("sizes in", graph_sizes, "")),
    "guards": (_FINISHED, _guards),
    "recompiles": ((events.Recompile, events.CacheLimit), _text),
    "bytecode": ((events.CaptureFinished, events.ResumeCode), _bytecode),
    "trace": ((events.LineTraced,), _text),
    "dynamic": (_FINISHED, _dynamic),
    "perf": ((events.CaptureFinished, events.BackendCompiled, events.GraphShared), _text),
    "captures": ((events.CaptureStarted, events.CaptureProgress, events.PiecesCompiled, events.CaptureFinished,
                  events.CompiledElsewhere, events.SwappedIn), _text),
    "effects": (_FINISHED, _effects),
    "artifacts": ((events.ArtifactRefused, events.NotCached, events.EntryLoaded, events.CaptureAwaited), _text),
    "failures": ((events.InternalFailure, events.EagerFallback), _text),
    "all": ((events.Event,), _text),
}


def require_log(name: str) -> None:
    if name not in LOGS:
        raise OptionValueError(f"log {name!r} is not accepted{list_accepted(name, LOGS, limit=len(LOGS))}")


class Repeated:
    """Events that say again what was shown: a break in a loop, or of a segment that is captured anew.  Counted only."""

    def __init__(self) -> None:
        self.counts: dict[tuple[object, ...], int] = {}
        self.titles: dict[tuple[object, ...], str] = {}

    def seen(self, event: events.Event) -> bool:
        if isinstance(event, events.GraphBreak):
            place = user_place(event)  # further breaks of one line follow from the first
            key: tuple[object, ...] = ("graph_breaks", place) if place is not None else ("graph_breaks", event.cause)
            self.titles.setdefault(key, f"{event.code} {event.title}: {event.cause}")
        elif isinstance(event, events.Recompile) and "length_hint(" in event.guard_text:
            subject = subject_of(event)
            key = ("recompiles", event.name, subject)
            self.titles.setdefault(key, f"recompile {short(event.name)}: {subject}")
        else:
            return False
        self.counts[key] = self.counts.get(key, -1) + 1
        return self.counts[key] > 0

    def lines(self) -> list[tuple[str, str]]:
        """(log, text) of each event that came again."""
        return [(str(key[0]), f"{count} more there, after {self.titles[key]}"
                 + (f", at {key[1][0]}:{key[1][1]}" if isinstance(key[1], tuple) else ""))
                for key, count in self.counts.items() if count]


class Prices:
    """The price of each recompile, once its capture is done."""

    def __init__(self) -> None:
        self.waiting: set[str] = set()

    def line(self, event: events.Event) -> str:
        if isinstance(event, events.Recompile):
            self.waiting.add(event.name)
        elif isinstance(event, events.CaptureFinished) and event.name in self.waiting:
            self.waiting.discard(event.name)
            return (f"recompiled {short(event.name)} in {event.seconds * 1e3:.1f} ms; one check of its {event.guards} "
                    f"guards takes {event.guard_microseconds:.1f} us")
        return ""


def follow(names: Iterable[str] = ("all",), stream: TextIO | None = None) -> Callable[[], None]:
    """Show these logs until the returned function is called; the stream is stderr by default."""
    chosen = tuple(dict.fromkeys(names))
    for name in chosen:
        require_log(name)
    if "all" in chosen:
        chosen = tuple(LOGS)
    repeated, prices = Repeated(), Prices()

    def show(event: events.Event) -> None:
        if repeated.seen(event):
            return
        if "recompiles" in chosen and (price := prices.line(event)):
            write(stream if stream is not None else sys.stderr, "recompiles", price, "")
        shown: list[Block] = []
        for name in chosen:
            kinds, text_of = LOGS[name]
            block = text_of(event) if isinstance(event, kinds) and not (shown and name == "all") else None
            if block is not None and block not in shown:
                shown.append(block)
                # stderr is looked up late, because it may be redirected while the program runs.
                write(stream if stream is not None else sys.stderr, name, *block)

    if "trace" in chosen:
        events.want_lines(True)
    unsubscribe = events.subscribe(show)

    def stop() -> None:
        atexit.unregister(stop)
        unsubscribe()
        if "trace" in chosen:
            events.want_lines(False)
        with contextlib.suppress(OSError, ValueError, AttributeError):  # at exit, the stream may be closed
            for name, text in repeated.lines():
                if name in chosen:
                    write(stream if stream is not None else sys.stderr, name, text, "")

    atexit.register(stop)
    return stop


def write(stream: TextIO, name: str, text: str, language: str) -> None:
    """One block of a log: its first line behind the log's name, the rest indented."""
    head, _, rest = text.partition("\n")
    if not stream.isatty():
        indented = "\n".join(f"        {line}" for line in rest.split("\n")) if rest else ""
        print(f"stator: [{name}] {head}{chr(10) + indented if indented else ''}", file=stream)
        return
    # Imported for a terminal alone: a tenth of a second.
    from rich.console import Console
    from rich.syntax import Syntax
    from rich.text import Text

    console = Console(file=stream, highlight=not language, soft_wrap=True)
    console.print(Text.assemble(("stator ", "bold magenta"), (f"[{name}] ", "cyan"), (head, "bold")))
    if rest and language:
        console.print(Syntax(rest, language, background_color="default", word_wrap=False))
    elif rest:
        console.print(Text("\n".join(f"    {line}" for line in rest.split("\n"))))


def show_progress(event: events.Event) -> None:
    """Show on a terminal that a capture or a compilation takes long; elsewhere, nothing."""
    stream = sys.stderr
    if not config.show_progress or isinstance(event, events.PiecesCompiled) and (
            event.seconds < config.capture_progress_seconds):
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a stream that is closed, or no stream
        if stream.isatty():
            write(stream, "progress", render(event), "")


events.progress_viewers.append(show_progress)
_stop: Callable[[], None] | None = None


def set_logs(*names: str, stream: TextIO | None = None, **flags: bool) -> None:
    """Show these logs from now on, instead of those before: `set_logs("guards")`, `set_logs(guards=True)`.

    A name may hold several, separated by commas, as in STATOR_LOGS. Without any, silence.
    """
    global _stop
    chosen: list[str] = []
    for name in names:
        if not isinstance(name, str):
            raise OptionTypeError(f"log {name!r} is not accepted; use the name of a log")
        chosen += [part.strip() for part in name.split(",") if part.strip()]
    for name, flag in flags.items():
        require_bool(name, flag)
        require_log(name)
        chosen += [name] if flag else []
    started = follow(chosen, stream) if chosen else None
    if _stop is not None:
        _stop()
    _stop = started


def follow_environment() -> None:
    """Do what the environment variable STATOR_LOGS asks for."""
    text = os.environ.get("STATOR_LOGS", "")
    if text.strip():
        set_logs(text)
