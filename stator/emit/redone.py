"""Calls that a compiled segment hands back to the original function.   its graph raised, a lock was taken  ->  EAGER

The entry then runs the function and passes the ending on to `check_ending`: where the function succeeds though the
graph or the trace has failed, the capture was wrong. That is an error under fullgraph, else one warning.
"""

from __future__ import annotations

import threading
import types
import warnings
from dataclasses import dataclass
from typing import Any

from stator import _core, events
from stator.errors import InternalError
from stator.held_signals import raised_by_a_handler

_being_redone = threading.local()  # causes: of the calls that this thread is making again, outermost first
_told: set[str] = set()
_OWN_FOLDER = __file__.rsplit("/", 2)[0]


@dataclass(frozen=True)
class ExpectedError:
    """The exception in which a trace ended, as data: the exception itself would keep frames alive."""

    module: str
    qualname: str
    filename: str | None
    line: int | None

    @classmethod
    def of(cls, error: BaseException, traceback: types.TracebackType | None) -> ExpectedError:
        kind = type(error)
        return cls(kind.__module__, kind.__qualname__, *innermost_line(traceback))

    def __str__(self) -> str:
        return self.qualname if self.line is None else f"{self.qualname} at {self.filename}:{self.line}"

    def is_raised_by(self, error: BaseException) -> bool:
        """Compare names of classes: a class made by the call itself is another one each time."""
        return (type(error).__module__, type(error).__qualname__) == (self.module, self.qualname)


def innermost_line(traceback: types.TracebackType | None) -> tuple[str | None, int | None]:
    """File and line of the innermost frame outside Stator."""
    found: tuple[str | None, int | None] = None, None
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if not filename.startswith((_OWN_FOLDER, "<stator")):
            found = filename, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


class EagerEntry:
    """Residual of an entry that runs the original function: the capture stopped, or ended in `expected`."""

    __slots__ = ("event", "expected", "__weakref__")

    def __init__(self, name: str, why: str, filename: str | None, line: int | None,
                 expected: ExpectedError | None = None) -> None:
        self.expected = expected
        self.event: events.Event = events.EagerFallback(name, why, filename, line)
        if expected is not None:
            self.event = events.ProgramRaised(name, expected.qualname, expected.filename, expected.line)

    def __call__(self) -> Any:
        events.emit(self.event)
        return run_as_it_is(self.expected)


def run_as_it_is(failure: str | ExpectedError | None = None) -> Any:
    """Result of a segment that has done nothing; `failure`: reported unless the function itself fails."""
    _being_redone.__dict__.setdefault("causes", []).append(failure)
    return _core.EAGER


def forgive() -> Any:
    """Expect nothing of the last run_as_it_is: the program may handle the failure of its graph."""
    _being_redone.causes[-1] = None
    return _core.EAGER


def check_ending(compiled: Any, error: BaseException | None, traceback: Any) -> None:
    """Compare the ending of the function with the cause of its run_as_it_is."""
    cause = _being_redone.causes.pop()
    if cause is None:
        return
    site = compiled._stator_site
    must_capture = site.settings.fullgraph or site.settings.strict
    if type(cause) is ExpectedError:
        if error is not None and (cause.is_raised_by(error) or raised_by_a_handler(error)):
            return
        found = "does not raise" if error is None else f"raises {ExpectedError.of(error, traceback)} instead"
        text = f"stator: the capture of {site.name} ended in {cause}, and the program {found}: a bug of Stator's " \
               "capture. The call was made eagerly, as every such call will be."
        wrong = InternalError(text)
        events.emit(events.InternalFailure(site.name, wrong))
        if site.settings.strict or must_capture and error is None:
            raise wrong from error
    else:
        text = cause
        if error is None and site.settings.fullgraph:
            raise InternalError(text)
    if error is None and text not in _told:
        _told.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def report_eager_call(compiled: Any, reason: str) -> None:
    """Emit the event of a call that runs eagerly on request: a stance, a disabled region, a debugger."""
    site = getattr(compiled, "_stator_site", None)
    if site is not None and events.listening():
        code = site.fn.__code__
        events.emit(events.EagerFallback(site.name, reason, code.co_filename, code.co_firstlineno))


_core.listen_to_redone(check_ending)
_core.listen_to_eager(report_eager_call)
