"""The exceptions that Stator raises to its user.

In: what went wrong, as fields.  Out: one exception whose text states the cause, the place and the remedy.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self


class UserFrame(NamedTuple):
    """One line of the user's stack, from the entry to the place of an event."""

    filename: str
    line: int
    function: str
    owner: str = ""  # the module whose method it is, as its user calls it: model.layers[3]


def warn(text: str) -> None:
    """Warn once for the innermost running line outside Stator and torch."""
    folders = [os.path.dirname(module.__file__ or "") + os.sep for module in
               (sys.modules["stator"], sys.modules.get("torch")) if module is not None]
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((*folders, "<stator")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=level)


class StatorError(RuntimeError):
    """Base of everything Stator raises on its own account.

    `like` names the classes that torch raises in that case.  Where the process has loaded its module, instances are of
    these classes too, so that `except torch._dynamo.exc.Unsupported:` catches them; nothing is loaded for it.
    """

    like: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *args: object, **kwargs: object) -> StatorError:
        return super().__new__(of_torchs_class_too(cls, cls.__dict__.get("like", ())), *args)

    def __init__(self, *args: object) -> None:
        RuntimeError.__init__(self, *args)  # and not the __init__ of torch's class

    def __reduce__(self) -> tuple[Any, ...]:
        plain = next((plain for (plain, _), made in _classes_made.items() if made is type(self)), type(self))
        return plain, self.args, self.__dict__ or None


_classes_made: dict[tuple[type, tuple[type, ...]], type] = {}


def of_torchs_class_too(cls: type[StatorError], names: tuple[str, ...]) -> type[StatorError]:
    """The subclass of `cls` that is one of what torch raises as well; `cls` itself where that is not loaded."""
    loaded = [getattr(sys.modules.get(name.rpartition(".")[0]), name.rpartition(".")[2], None) for name in names]
    theirs = tuple(each for each in loaded if isinstance(each, type) and not issubclass(cls, each))
    if not theirs:
        return cls
    made = _classes_made.get((cls, theirs))
    if made is None:
        own = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        metaclass: Any = type(cls)
        made = _classes_made[cls, theirs] = metaclass(cls.__name__, (cls, *theirs), own)
    return made


_DATA_DEPENDENT = ("SB002", "SB003")  # of a branch, and of a number that it would need: UserError in torch


class Unsupported(StatorError):
    """The program cannot be captured, and `fullgraph=True` allows no graph break; `stack` is outermost first."""

    like = ("torch._dynamo.exc.Unsupported",)

    def __new__(cls, code: str = "", *args: object, **kwargs: object) -> Self:
        names = (*cls.like, *(("torch._dynamo.exc.UserError",) if code in _DATA_DEPENDENT else ()))
        return RuntimeError.__new__(of_torchs_class_too(cls, names), code, *args)  # type: ignore[return-value]

    def __init__(self, code: str, title: str, cause: str = "", remedy: str = "", filename: str | None = None,
                 line: int | None = None, stack: Sequence[UserFrame | tuple[str, int, str]] = ()) -> None:
        super().__init__(code, title, cause, remedy, filename, line, tuple(stack))
        self.code, self.title, self.cause, self.remedy = code, title, cause, remedy
        self.filename, self.line = filename, line
        self.stack = tuple(UserFrame(*entry) for entry in stack)

    def __str__(self) -> str:
        return rendering.problem(self.code, self.title, self.cause, self.remedy, self.filename, self.line, self.stack)

    @property
    def msg(self) -> str:
        return str(self)


class InternalError(StatorError):
    """A bug in Stator: an invariant that did not hold."""

    like = ("torch._dynamo.exc.InternalTorchDynamoError",)


class BackendError(StatorError):
    """The backend failed to compile the graph; the backend's own exception is `__cause__`."""

    like = ("torch._dynamo.exc.BackendCompilerFailed",)

    def __init__(self, backend: str, message: str) -> None:
        super().__init__(backend, message)
        self.backend, self.message = backend, message

    def __str__(self) -> str:
        return f"backend {self.backend!r}: {self.message}"

    @property
    def inner_exception(self) -> BaseException | None:
        return self.__cause__


class RecompileLimit(StatorError):
    """One compiled function was captured as often as its `recompile_limit` allows."""

    like = ("torch._dynamo.exc.FailOnRecompileLimitHit",)


class RecompileForbidden(StatorError):
    """No compiled entry fits the call, and the stance "fail_on_recompile" or config.error_on_recompile forbids more."""

    like = ("torch._dynamo.exc.RecompileError",)


class RankAgreementTimeout(StatorError):
    """Under strict=True: other ranks did not come to a place where this one captures."""


class RanksDisagree(StatorError):
    """Under strict=True: ranks captured one place with different breaks."""


class DeclarationError(StatorError, ValueError):
    """A dimension that was declared dynamic, and is not: the text names what made a constant of it, and the line."""

    like = ("torch.fx.experimental.symbolic_shapes.ConstraintViolationError",)


class OptionError(StatorError):
    """An argument of the public API that is not accepted; the text names what is."""


class OptionTypeError(OptionError, TypeError):
    """An argument of a type that is not accepted."""


class OptionValueError(OptionError, ValueError):
    """An argument of an accepted type with a value that is not accepted."""


class _Rendering:
    """How breaks are shown; `stator.report.frames` puts its own in, with the user's lines and the remedy."""

    problem: Callable[..., str] = staticmethod(lambda code, title, cause, *more: f"{code} {title}: {cause}")


rendering = _Rendering()


def describe_callable(fn: Callable[..., object]) -> str:
    """`module.qualname` of a callable where it has one, else its repr."""
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None)
    if not isinstance(name, str):
        return repr(fn)
    module = getattr(fn, "__module__", None)
    return f"{module}.{name}" if isinstance(module, str) else name
