"""Capture a changed program, and compare it with eager of the original.

In: recorded calls and a `Version`: changed texts of the user's files, settings, added arguments.  Out: a `Result`:
remaining breaks, graphs, captures and time of a call, and the first difference from eager.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import time
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stator import events
from stator.audit.comparison import Outcome, differences
from stator.audit.trials import Unrepeatable
from stator.capture import code_memory
from stator.capture.miss import make_entry
from stator.remedies.function_copies import Functions, copy_of, namespace_with, substituted, with_copies
from stator.remedies.observation import Observation
from stator.remedies.recorded_calls import (
    ALWAYS,
    BAD_NUMBERS,
    NUMBERS,
    Added,
    Call,
    Calls,
    Perturbation,
    TooLong,
)
from stator.remedies.registry import EAGER, RECOMPILE, Problem
from stator.remedies.source_text import SourceText, same_code
from stator.report.frames import is_library, user_frames
from stator.report.text import user_place
from stator.settings.options import build_settings

ROUNDS = 5  # of timing; the least is taken
LEAST_PATIENCE = 1.0  # seconds that calls with other numbers may take


@dataclass(frozen=True)
class Version:
    """The program with some changes."""

    texts: Mapping[str, SourceText] = field(default_factory=dict)  # by file
    definitions: Mapping[str, str] = field(default_factory=dict)  # new functions of a file
    settings: Mapping[str, object] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)  # arguments that callers compute


@dataclass
class Result:
    """Captures of one version over the recorded calls."""

    problems: list[Problem]
    graphs: int
    captures: int
    steady: int = 0  # captures of a third round of calls
    microseconds: float = 0.0  # of one recorded call, compiled
    outcome: Outcome | None = None
    shared: list[list[int]] = field(default_factory=list)  # for each call, results that are inputs

    @property
    def breaks(self) -> int:
        return sum(each.code != RECOMPILE for each in self.problems)

    @property
    def recompiles(self) -> int:
        return sum(each.code == RECOMPILE for each in self.problems)

    @property
    def score(self) -> tuple[int, int, int]:
        return self.breaks, self.recompiles, self.captures


class NotRepeatable(Exception):
    """Calls that cannot be made again: a collective, a custom operator."""


class World:
    """The original with its recorded calls; versions are tried on copies."""

    def __init__(self, fn: Callable[..., object], calls: Calls, settings: Mapping[str, object]) -> None:
        self.fn, self.calls = fn, calls
        self.settings = {key: value for key, value in settings.items() if key not in ("fullgraph", "backend", "mode")}
        self.functions = Functions(calls.reached)
        watch = Unrepeatable()
        began = time.perf_counter()
        self.eager = calls.run(fn, around=lambda whole: _watched(watch, whole))
        self.patience = max(LEAST_PATIENCE, 20 * (time.perf_counter() - began))
        if watch.found is not None:
            raise NotRepeatable(f"the operator {watch.found} must not run twice")
        self.shared = calls.shared
        self.unstable = {path for path, _ in differences(self.eager, calls.run(fn), True)}
        self._eager: dict[tuple[str, bool], Outcome | None] = {}
        self._copies: tuple[Version | None, dict[types.FunctionType, types.FunctionType]] = (None, {})

    # ------------------------------------------------------------------ captures

    def copies(self, version: Version) -> dict[types.FunctionType, types.FunctionType]:
        """The functions that a version changes, with their new code."""
        if self._copies[0] is version:
            return self._copies[1]
        made: dict[types.FunctionType, types.FunctionType] = {}
        for filename, text in version.texts.items():
            original = SourceText.of_file(filename)
            namespace: dict[str, object] | None = None
            if original is None:
                continue
            for name, ordinal in text.numbered():
                old, new = original.code_of(name, ordinal), text.code_of(name, ordinal)
                if old is None or new is None or same_code(old, new):
                    continue
                for function in self.functions.find(filename, name):
                    if function.__code__.co_firstlineno == old.co_firstlineno:
                        namespace = namespace or namespace_with(function, version.definitions.get(filename, ""))
                        made[function] = copy_of(function, new, namespace)
        self._copies = (version, made)
        return made

    def capture(self, version: Version, timed: bool = False) -> Result:
        """Capture a version over the recorded calls, made twice."""
        with self._apart(version), events.record() as log:
            call, added = self._entry(version)
            first = self.calls.run(call, added=added)
            shared = self.calls.shared
            self.calls.run(call, added=added)
            result = _result(log, first)
            with events.record() as later:
                self.calls.run(call, added=added)
            result.steady = sum(isinstance(event, events.CaptureFinished) for event in later)
            result.shared = shared
            if timed:
                result.microseconds = self._time(call, added)
        return result

    def _entry(self, version: Version) -> tuple[Callable[..., object], Added]:
        forward = getattr(self.fn, "forward", self.fn)
        namespace = getattr(forward, "__globals__", {})
        codes = {name: compile(text, "<remedy>", "eval") for name, text in version.added.items()}

        def added(call: Call) -> dict[str, object]:
            if not codes:
                return {}
            names = inspect.signature(forward).bind(*call.args, **call.kwargs).arguments
            return {name: eval(code, {**namespace, **names}) for name, code in codes.items()}  # noqa: S307

        options: dict[str, Any] = {"backend": "eager", **self.settings, **version.settings}
        settings = build_settings(**options)
        alone = replace(settings, replay=False, isolate_recompiles=True, start="now", audit=0)
        return make_entry(with_copies(self.fn, self.copies(version)), alone), added

    @contextlib.contextmanager
    def _apart(self, version: Version) -> Iterator[None]:
        """Captures meet the copies of a version, and neither use nor leave facts about the user's code."""
        learned = OrderedDict(code_memory._records)
        code_memory.forget()
        try:
            with substituted(self.copies(version)):
                yield
        finally:
            code_memory.forget()
            code_memory._records.update(learned)

    def _time(self, call: Callable[..., object], added: Added) -> float:
        """Microseconds of one call: the least of some rounds."""
        took = []

        def timed(whole: object) -> None:
            pairs = [(each, added(each)) for each in self.calls.calls]
            began = time.perf_counter()
            for each, more in pairs:
                call(*each.args, **each.kwargs, **more)
            took.append(time.perf_counter() - began)

        for _ in range(ROUNDS):
            self.calls.run(call, around=timed)
        return min(took, default=0.0) / len(self.calls.calls) * 1e6

    # ------------------------------------------------------------------ comparison

    def compare(self, version: Version, result: Result, branches: Sequence[tuple[str, ast.If | ast.IfExp | ast.While]],
                watched: Sequence[types.FunctionType]) -> tuple[str, list[str]]:
        """The first difference from eager, and remarks; no difference is an empty text."""
        assert result.outcome is not None
        if why := self._difference(self.eager, result.outcome):
            return why, []
        remarks = [] if result.shared == self.shared else [
            "eager returns an input itself in a call, and the changed program a new tensor"]
        seen = Observation()
        codes = [function.__code__ for function in watched]
        if branches:
            self.calls.run(self.fn, around=lambda whole: seen.watch(codes, whole))
        with self._apart(version):
            call, added = self._entry(version)
            for number, (name, perturbation, state) in enumerate(_perturbations()):
                covered = all(seen.went_both_ways(where, branch) for where, branch in branches)
                if covered and number >= ALWAYS:
                    break
                eager = self._perturbed(name, perturbation, state)
                if eager is None:
                    remarks.append(f"inputs {name}: eager does not end within {self.patience:.0f} s; not compared")
                    continue
                if branches and not covered:
                    self.calls.run(self.fn, perturbation, state, around=lambda whole: seen.watch(codes, whole))
                try:
                    changed = self.calls.run(call, perturbation, state, added, seconds=2 * self.patience)
                except TooLong:
                    return f"inputs {name}: the changed program does not end", []
                raised, raises = _raised(eager), _raised(changed)
                if raised and raised != raises:
                    remarks.append(f"inputs {name}: eager raises {raised}, the changed program "
                                   f"{'raises ' + raises if raises else 'does not'}")
                elif why := self._difference(eager, changed):
                    return f"inputs {name}: {why}", []
        if not all(seen.went_both_ways(where, branch) for where, branch in branches):
            return "one way of the branch was not reached by any input, so that it could not be compared", []
        return "", remarks

    def _perturbed(self, name: str, perturbation: Perturbation, state: bool) -> Outcome | None:
        """Eager calls with other numbers; None where they do not end in time."""
        key = (name, state)
        if key not in self._eager:
            try:
                self._eager[key] = self.calls.run(self.fn, perturbation, state, seconds=self.patience)
            except TooLong:
                self._eager[key] = None
        return self._eager[key]

    def _difference(self, eager: Outcome, changed: Outcome) -> str:
        for path, why in differences(eager, changed, True):
            if path not in self.unstable or _kind(eager, path) != _kind(changed, path):
                return f"{path}: {why}"
        return ""


def _watched(watch: Unrepeatable, whole: Callable[[], object]) -> object:
    with watch:
        return whole()


def _perturbations() -> list[tuple[str, Perturbation, bool]]:
    return [*((name, each, False) for name, each in (*NUMBERS, *BAD_NUMBERS)),
            *((name, each, True) for name, each in (*NUMBERS, *BAD_NUMBERS))]


def _raised(outcome: Outcome) -> str:
    """The class of the first exception of the calls."""
    if outcome.error is not None:
        return type(outcome.error).__qualname__
    values = outcome.value if isinstance(outcome.value, list) else []
    return next((str(each[1]) for each in values if each[0] == "raised"), "")


def _kind(outcome: Outcome, path: str) -> str:
    return outcome.texts.get(path, "nothing").partition(" ")[0]


def own_place(event: events.GraphBreak) -> tuple[str | None, int | None]:
    """The innermost line outside installed packages, else the user's line."""
    own = [frame for frame in user_frames(event.stack) if "-packages" not in frame.filename]
    return own[-1][:2] if own else user_place(event) or (None, None)


def _result(log: Sequence[events.Event], outcome: Outcome) -> Result:
    found: dict[Problem, None] = {}
    for event in log:
        if isinstance(event, events.GraphBreak):
            found[Problem(event.code, event.cause, *own_place(event))] = None
        elif isinstance(event, events.Recompile):
            place = (event.filename, event.line) if event.filename and not is_library(event.filename) else (None, None)
            found[Problem(RECOMPILE, event.guard_text or event.reason, *place)] = None
        elif isinstance(event, (events.EagerFallback, events.ProgramRaised)):
            why = event.why if isinstance(event, events.EagerFallback) else event.error
            found[Problem(EAGER, why, event.filename, event.line)] = None
        elif isinstance(event, events.InternalFailure):
            found[Problem(EAGER, repr(event.error), None, None)] = None
    captured = [event for event in log if isinstance(event, events.CaptureFinished)]
    return Result(list(found), sum(event.graph is not None for event in captured), len(captured), outcome=outcome)
