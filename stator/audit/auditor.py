"""Audit mode: one call in n is also made eagerly, and compared.   audited(entry, fn, settings)  ->  a callable like it

The eager run comes first; everything it did is put back, and the compiled call is made as if nothing had been.  Where
the two differ, one warning names the difference and the line of the program first.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

from stator import errors, events
from stator.audit.checkpoint import CannotRestore, Checkpoint
from stator.audit.comparison import Outcome
from stator.audit.reach import TooMuch, reach
from stator.audit.search import search, tags_of
from stator.audit.trials import Trials, is_exact, reaches_whole_function, unrepeatable_node
from stator.settings import marks
from stator.settings.options import Settings

_auditing = threading.local()


def audited(entry: Any, fn: Callable[..., Any], settings: Settings) -> Any:
    """The entry, with every n-th call audited, the first among them."""
    numbers = itertools.count()
    refused: list[str] = []  # why no call is audited any more

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if refused or next(numbers) % settings.audit or getattr(_auditing, "active", False) or marks.disable_depth():
            return entry(*args, **kwargs)
        _auditing.active = True
        try:
            return audit(entry, fn, settings, args, kwargs, refused)
        finally:
            _auditing.active = False

    call._stator_site = entry._stator_site  # type: ignore[attr-defined]
    return call


def audit(entry: Any, fn: Callable[..., Any], settings: Settings, args: tuple[Any, ...], kwargs: dict[str, Any],
          refused: list[str]) -> Any:
    """One call, made both ways; the answer is the compiled one."""
    name = str(settings.name or getattr(fn, "__qualname__", "?"))
    try:
        trials = Trials(fn, args, kwargs, is_exact(settings.backend))
    except TooMuch as why:
        events.emit(events.AuditSkipped(name, str(why)))
        return entry(*args, **kwargs)
    if reaches_whole_function(trials.reached):  # whether it is called, graphs know
        tags = tags_of(entry)
        if any(call := unrepeatable_node(tag) for tag in tags):
            refuse(name, call, refused)
        if refused or not tags:
            return entry(*args, **kwargs)
    eager = trials.attempt(fn)
    if trials.unrepeatable:  # it has run: this was the call
        refuse(name, trials.unrepeatable, refused)
        return answer(eager)
    try:
        trials.before.restore()
    except CannotRestore as why:  # the program has run, and cannot be run again
        events.emit(events.AuditSkipped(name, str(why)))
        return answer(eager)
    compiled = trials.attempt(entry, quiet=False)
    found = trials.compare(eager, compiled)
    events.emit(events.Audited(name, len(found)))
    if found:
        report(trials, entry, settings, name, found)
    return answer(compiled)


def refuse(name: str, what: str, refused: list[str]) -> None:
    """Audit no further call, and warn once with the reason."""
    refused.append(f"{what} must not run twice")
    events.emit(events.AuditSkipped(name, refused[-1]))
    errors.warn(f"stator: audit: calls of {name} are not audited: {refused[-1]}")


def answer(outcome: Outcome) -> Any:
    """Do what the call would have done: warn, write to the streams, return or raise."""
    for each in outcome.warned:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    for stream, text in zip((sys.stdout, sys.stderr), outcome.printed, strict=True):
        if text:
            stream.write(text)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def report(trials: Trials, entry: object, settings: Settings, name: str, found: list[tuple[str, str]]) -> None:
    """Report the differences; the search for the line begins and ends in the state before the call and after it."""
    after = Checkpoint(reach(trials.fn, trials.args, trials.kwargs))
    text, place = f"{found[0][0]}: {found[0][1]}", (None, None)
    try:
        trials.before.restore()
        finding = search(trials, entry, settings)
        if finding is not None:
            text, place = str(finding), (finding.filename, finding.line)  # type: ignore[assignment]
    except CannotRestore as why:
        text += f" (not searched: {why})"
    finally:
        after.restore()
    event = events.AuditDifference(name, tuple(found), text, *place)
    events.emit(event)
    errors.warn(f"stator: audit: a compiled call of {name} differs from eager. {text}")
