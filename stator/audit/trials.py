"""Make one call again and again, each time from the same state.   Trials(fn, args, kwargs).run(other)  ->  Outcome"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from stator.audit.checkpoint import Checkpoint
from stator.audit.likeness import Outcome, differences, run
from stator.audit.reach import Place, parts, place_of, reach
from stator.audit.repeats import Unrepeatable

_EXACT = ("eager", "eager_noexcept", "aot_eager")


class Trials:
    """One call; `run` leaves everything as it was before."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], exact: bool) -> None:
        self.fn, self.args, self.kwargs, self.exact = fn, args, kwargs, exact
        self.reached = reach(fn, args, kwargs)
        self.before = Checkpoint(self.reached)
        self.unrepeatable: str | None = None  # an operator of the eager run that must not run twice

    def attempt(self, callee: Callable[..., Any], quiet: bool = True) -> Outcome:
        """Make the call and leave its effects."""
        if callee is not self.fn:
            return run(lambda: callee(*self.args, **self.kwargs), self.reached, quiet)
        watch = Unrepeatable()

        def watched() -> Any:
            with watch:
                return callee(*self.args, **self.kwargs)
        outcome = run(watched, self.reached, quiet)
        self.unrepeatable = self.unrepeatable or watch.found
        return outcome

    def run(self, callee: Callable[..., Any]) -> Outcome:
        try:
            return self.attempt(callee)
        finally:
            self.before.restore()

    def compare(self, eager: Outcome, compiled: Outcome) -> list[tuple[str, str]]:
        return list(differences(eager, compiled, self.exact))

    # ------------------------------------------------------------------ places

    def first_line(self, happened: Callable[[], bool]) -> tuple[str, int] | None:
        """The line of the program after which something is so, in an eager run."""
        found: list[tuple[str, int]] = []
        current: dict[Any, int] = {}

        def local(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
            if not found and frame in current and happened():
                found.append((frame.f_code.co_filename, current[frame]))
            current[frame] = frame.f_lineno
            return local

        def entered(frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
            return local if place_of(frame.f_code.co_filename) is Place.PROGRAM else None

        previous = sys.gettrace()

        def traced(*args: object, **kwargs: object) -> Any:
            sys.settrace(entered)
            try:
                return self.fn(*args, **kwargs)
            finally:
                sys.settrace(previous)

        self.run(traced)
        return found[0] if found else None

    def line_that_changes(self, path: str) -> tuple[str, int] | None:
        """Where an eager run first changes the object that a path leads through."""
        owners = [each for each in self.reached.values() if path.startswith(each.path)]
        if not owners:
            return None
        value = max(owners, key=lambda each: len(each.path)).value
        before = fingerprint(value)
        return self.first_line(lambda: fingerprint(value) != before)

    def line_that_prints(self, length: int) -> tuple[str, int] | None:
        """Where an eager run has printed more than so many characters."""
        return self.first_line(lambda: sys.stdout.tell() > length)


def fingerprint(value: object) -> Any:
    own = [(name, id(part)) for name, part in parts(value)]
    return own, getattr(value, "_version", None) if hasattr(type(value), "_version") else None


def is_exact(backend: object) -> bool:
    """Whether a backend computes bit for bit what eager does; of a callable that is not known."""
    return backend in _EXACT if isinstance(backend, str) else True
