"""The stance: how compiled functions behave from now on, for the whole process.

    set_stance("force_eager")                    until it is changed again
    with set_stance("eager_on_recompile"): ...   for a while
    @set_stance("fail_on_recompile")             during every call of a function
    with set_stance(force_backend="eager"): ...  whatever backend functions were compiled for
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stator import _core
from stator.errors import OptionTypeError, OptionValueError
from stator.settings.options import list_accepted

# Stance -> what happens to a call.
STANCES: dict[str, str] = {
    "default": "compiled code runs where it fits, and is made where none fits",
    "force_eager": "every compiled function runs its original",
    "eager_on_recompile": "compiled code runs where it fits; where none fits, the original",
    "fail_on_recompile": "compiled code runs where it fits; where none fits, RecompileForbidden is raised",
    "eager_then_compile": "the first call of each compiled function runs its original; later ones are compiled",
}

_current = "default"
_backend: Any = None
_listeners: list[Callable[[Any], None]] = []


def current() -> str:
    return _current


def forced_backend() -> Any:
    """The backend that every compiled function uses now; None: its own."""
    return _backend


def on_forced_backend(listener: Callable[[Any], None]) -> None:
    """Call `listener(backend)` whenever another backend is forced, or none any more."""
    _listeners.append(listener)


def apply(stance: str, backend: object = None) -> tuple[str, Any]:
    """Put a stance in force; returns the one before. The interpreter never runs this while tracing."""
    global _current, _backend
    before = _current, _backend
    if backend is not _backend:
        for listener in _listeners:
            listener(backend)  # refuses a backend that does not exist
    _current, _backend = stance, backend
    _core.force_eager(stance == "force_eager")
    return before


class set_stance:  # noqa: N801  (called like the function it is to its user)
    """Put a stance in force at once; as a context or decorator, for that long."""

    def __init__(self, stance: str = "default", *, force_backend: object = None) -> None:
        if not isinstance(stance, str):
            raise OptionTypeError(f"stance={stance!r} is not accepted; use the name of a stance")
        if stance not in STANCES:
            raise OptionValueError(f"stance {stance!r} is not accepted{list_accepted(stance, STANCES)}")
        if force_backend is not None and stance != "default":
            raise OptionValueError(f"force_backend= is not accepted with the stance {stance!r}; use 'default'")
        if force_backend is not None and not isinstance(force_backend, str) and not callable(force_backend):
            raise OptionTypeError(f"force_backend={force_backend!r} is not accepted; use a name or a callable")
        self.stance = stance, force_backend
        self.before = apply(*self.stance)

    def __enter__(self) -> None:
        apply(*self.stance)

    def __exit__(self, *exc_info: object) -> None:
        apply(*self.before)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        apply(*self.before)  # a decorator changes nothing until its function is called
        stance = self.stance

        @functools.wraps(fn)
        def run_in_stance(*args: object, **kwargs: object) -> Any:
            before = apply(*stance)
            try:
                return fn(*args, **kwargs)
            finally:
                apply(*before)

        return run_in_stance
