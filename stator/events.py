"""Typed events of captures, breaks and compilations.   emit(event)  ->  listeners: logs, reports, `explain`, tests

    with events.record() as log:
        compiled(x)
    assert not [event for event in log if isinstance(event, events.GraphBreak)]
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, dataclass_transform

from stator.breaks import Break
from stator.errors import UserFrame


@dataclass_transform(frozen_default=True)
class Event:
    """Base of all events; each is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


Terms = tuple[tuple[str, str], ...]  # names of arguments in guards, and what the user calls them: args[0], x


class CaptureStarted(Event):
    name: str
    file: str
    line: int


class CaptureFinished(Event):
    """A segment was captured and installed. `graph` is the torch.fx.GraphModule, None where there is none."""

    name: str
    graph_nodes: int
    guards: int
    seconds: float
    graph: Any = None
    residual_source: str = ""
    guard_list: Sequence[Any] = ()  # the guards themselves, each with text() and where
    terms: Terms = ()
    guard_microseconds: float = 0.0  # of one check, measured while somebody listens
    kind_microseconds: tuple[tuple[str, float], ...] = ()  # the same by kind of guard, where prices are wanted


class CaptureProgress(Event):
    """A capture takes long: loop iterations and operations so far, and the line of the program it has reached."""

    name: str
    seconds: float
    iterations: int
    operations: int
    filename: str
    line: int


class ResumeCode(Event):
    """Bytecode was made that runs the rest of a frame natively; `code` is the code object."""

    name: str
    code: Any


class LineTraced(Event):
    """The interpreter begins a line of the program; only while `lines_wanted()`."""

    filename: str
    line: int
    function: str
    instructions: tuple[tuple[str, object], ...] = ()  # of the line: opcode and argument


class GraphBreak(Event):
    code: str
    title: str
    cause: str
    remedy: str
    filename: str | None
    line: int | None
    stack: tuple[UserFrame, ...] = ()

    @classmethod
    def of(cls, stop: Break) -> GraphBreak:
        return cls(stop.code, stop.title, stop.cause, stop.remedy, stop.filename, stop.line, tuple(stop.stack))


class Miss(NamedTuple):
    """Why one entry did not accept a call: the guard that failed, and how many others did."""

    guard_text: str
    old: str
    new: str
    filename: str | None
    line: int | None
    more: int = 0


class Recompile(Event):
    """No entry accepted the call. `guard_text` is the failed guard of the nearest entry; `others`: further ones."""

    name: str
    reason: str
    guard_text: str = ""
    old: str = ""
    new: str = ""
    filename: str | None = None
    line: int | None = None
    terms: Terms = ()
    others: tuple[Miss, ...] = ()


class EagerFallback(Event):
    """This call runs eagerly; `filename` and `line`: where the capture stopped, in the user's program."""

    name: str
    why: str
    filename: str | None = None
    line: int | None = None


class ComputedAhead(Event):  # under fullgraph, in place of a graph break: a guard computes what decides the capture
    name: str
    cause: str
    filename: str | None
    line: int | None


class ProgramRaised(Event):
    """The capture ended in an exception of the program: this call runs eagerly, so that CPython raises it."""

    name: str
    error: str
    filename: str | None = None
    line: int | None = None


class InternalFailure(Event):
    """A bug of Stator's own stopped a capture; the call ran eagerly unless `strict`."""

    name: str
    error: BaseException


class CacheLimit(Event):
    name: str
    limit: int


class BackendCompiled(Event):
    """The backend turned a graph into a callable."""

    backend: str
    graph_nodes: int
    seconds: float


class GraphShared(Event):
    """A graph of equal content was compiled before: its callable serves this capture."""

    backend: str
    graph_nodes: int


class GraphCut(Event):
    """A graph was compiled in pieces: for each unique one, its nodes and how often it is used."""

    pieces: tuple[tuple[int, int], ...]
    seconds: tuple[float, ...] = ()  # of each compilation
    names: tuple[str, ...] = ()  # of calls that the user has named, else empty
    refused: tuple[str, ...] = ()  # named calls that are no pieces of their own, and why


class PiecesCompiled(Event):
    """A graph is being compiled in pieces: unique ones done, of how many, in which time."""

    done: int
    pieces: int
    seconds: float


class CompiledElsewhere(Event):
    """Another process has compiled a graph of this function, or failed; calls then go on eagerly."""

    name: str
    seconds: float
    failure: str = ""


class SwappedIn(Event):
    """Calls of a function that was started eagerly run compiled code from this one on."""

    name: str
    eager_calls: int
    seconds: float  # that this call took to capture the graph and to load the compiled code


class GraphKeptWhole(Event):
    """A graph was compiled in one piece though regions were wanted."""

    graph_nodes: int
    why: str


class ArtifactRefused(Event):
    """A file or folder of stored entries is not used; a capture takes its place.  `why` has the remedy, too."""

    path: str
    why: str


class EntryLoaded(Event):
    """An entry of another process accepts the call: nothing was traced or compiled."""

    name: str
    guards: int


class CaptureAwaited(Event):  # another process has captured the same function meanwhile
    name: str
    ended: str  # why the wait ended
    seconds: float


class NotCached(Event):
    """An entry cannot be stored, or stored entries cannot be used: the first reason, and the user's line."""

    name: str
    why: str
    filename: str | None = None
    line: int | None = None


class Audited(Event):
    """A call was made eagerly as well and compared."""

    name: str
    differences: int


class AuditSkipped(Event):
    """A call was to be audited and could not be."""

    name: str
    why: str


class AuditDifference(Event):
    """A compiled call differs from the eager one; `text` has the differences and the first place."""

    name: str
    differences: tuple[tuple[str, str], ...]
    text: str
    filename: str | None
    line: int | None


Listener = Callable[[Event], object]
# Replaced as a whole under the lock and never changed in place, so that `emit` reads it without one.
_listeners: tuple[Listener, ...] = ()
_lock = threading.Lock()
_lines_wanted = 0
progress_viewers: list[Listener] = []  # get progress of captures; not listeners, for whom other events are built


class Trial(threading.local):
    """Captures of a thread that are tried and not used: no event of it is emitted."""

    active = False


trial = Trial()


def want_lines(wanted: bool) -> None:
    """Switch LineTraced events on or off: they cost too much to be made for nobody."""
    global _lines_wanted
    _lines_wanted += 1 if wanted else -1


def lines_wanted() -> bool:
    return _lines_wanted > 0


def listening() -> bool:
    """Whether anybody listens: check it before building a costly event to build."""
    return bool(_listeners) and not trial.active


def emit(event: Event) -> None:
    """Hand an event to every listener; the exception of a listener becomes a warning."""
    for listener in () if trial.active else _listeners:
        try:
            listener(event)
        except Exception as error:
            warnings.warn(f"stator: the listener {listener!r} failed on {type(event).__name__}: {error!r}",
                          RuntimeWarning, stacklevel=2)


def emit_progress(event: CaptureProgress | PiecesCompiled) -> None:
    emit(event)
    for viewer in progress_viewers:
        viewer(event)


def subscribe(callback: Listener) -> Callable[[], None]:
    """Call `callback` with every event from now on; returns the function that ends it."""
    global _listeners
    listener = functools.partial(callback)  # its own for each subscription: one callback may have several
    with _lock:
        _listeners = (*_listeners, listener)

    def unsubscribe() -> None:
        global _listeners
        with _lock:
            _listeners = tuple(other for other in _listeners if other is not listener)

    return unsubscribe


@contextlib.contextmanager
def record() -> Iterator[list[Event]]:
    log: list[Event] = []
    with contextlib.ExitStack() as block:
        block.callback(subscribe(log.append))
        yield log
