"""The exceptions that Stator raises to its user.

In: what went wrong, as fields.  Out: one exception whose text says the cause, the place and the remedy.

The program's own exceptions never pass through here, and `breaks.Break` is not among these: it is how the
tracer stops, and the user sees it only as `Unsupported`.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from typing import NamedTuple


class UserFrame(NamedTuple):
    """One line of the user's program on the way to the place of an event."""

    filename: str
    line: int
    function: str


class StatorError(Exception):
    """Base of everything Stator raises on its own account."""


class Unsupported(StatorError):
    """The program does something that cannot be captured, and `fullgraph=True` allows no graph break.

    `stack` is outermost first, so its last entry is the innermost user frame.
    """

    def __init__(
        self,
        code: str,
        title: str,
        cause: str = "",
        remedy: str = "",
        filename: str | None = None,
        line: int | None = None,
        stack: Sequence[tuple[str, int, str]] = (),
    ) -> None:
        super().__init__(code, title, cause, remedy, filename, line, tuple(stack))
        self.code = code
        self.title = title
        self.cause = cause
        self.remedy = remedy
        self.filename = filename
        self.line = line
        self.stack = tuple(UserFrame(*entry) for entry in stack)

    def __str__(self) -> str:
        return render_problem(
            self.code, self.title, self.cause, self.remedy, self.filename, self.line, self.stack
        )


class InternalError(StatorError):
    """A bug of Stator's own: an invariant that did not hold."""


class BackendError(StatorError):
    """The backend failed to compile the graph; the backend's own exception is `__cause__`."""

    def __init__(self, backend: str, message: str) -> None:
        super().__init__(backend, message)
        self.backend = backend
        self.message = message

    def __str__(self) -> str:
        return f"backend {self.backend!r}: {self.message}"


class RecompileLimit(StatorError):
    """One compiled function was captured as often as its `recompile_limit` allows."""


class RecompileForbidden(StatorError, RuntimeError):
    """No compiled entry fits the call, and the stance is "fail_on_recompile"."""


class DeclarationError(StatorError, ValueError):
    """A dimension that was declared dynamic, and is not: the text says what made a constant of it, and where."""


class OptionError(StatorError):
    """An argument of the public API that is not accepted; the text says what is."""


class OptionTypeError(OptionError, TypeError):
    """An argument of a type that is not accepted."""


class OptionValueError(OptionError, ValueError):
    """An argument of an accepted type with a value that is not accepted."""


def render_problem(
    code: str,
    title: str,
    cause: str,
    remedy: str,
    filename: str | None,
    line: int | None,
    stack: Sequence[UserFrame] = (),
) -> str:
    """The text of one break: code and cause, the user's lines innermost first, the remedy."""
    lines = [f"{code} {title}: {cause}" if cause else f"{code} {title}"]
    frames = list(stack)
    if filename is not None and line is not None:
        innermost = frames[-1] if frames else None
        if innermost is None or (innermost.filename, innermost.line) != (filename, line):
            frames.append(UserFrame(filename, line, ""))
    for position, frame in enumerate(reversed(frames)):
        place = f"  {'at' if position == 0 else 'called from'} {frame.filename}:{frame.line}"
        lines.append(f"{place} in {frame.function}" if frame.function else place)
        source = linecache.getline(frame.filename, frame.line).strip()
        if source:
            lines.append(f"    {source}")
    if remedy:
        lines.append(f"  remedy: {remedy}")
    return "\n".join(lines)


def describe_callable(fn: Callable[..., object]) -> str:
    """`module.qualname` of a callable where it has one, else its repr."""
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None)
    if not isinstance(name, str):
        return repr(fn)
    module = getattr(fn, "__module__", None)
    return f"{module}.{name}" if isinstance(module, str) else name
