"""What compiled functions do from now on, for the whole process.

    set_stance("force_eager")                    until it is changed again
    with set_stance("eager_on_recompile"): ...   for a while
    @set_stance("fail_on_recompile")             during every call of a function

In: a stance by name.  Out: `current()`, which the pipeline asks at every miss; "force_eager" is known to the
entry objects themselves, because it must stop hits as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stator import _core
from stator.errors import OptionTypeError, OptionValueError
from stator.options import list_accepted

# Stance -> what happens to a call.
STANCES: dict[str, str] = {
    "default": "compiled code runs where it fits, and is made where none fits",
    "force_eager": "every compiled function runs its original",
    "eager_on_recompile": "compiled code runs where it fits; where none fits, the original",
    "fail_on_recompile": "compiled code runs where it fits; where none fits, RecompileForbidden is raised",
    "eager_then_compile": "the first call of each compiled function runs its original; later ones are compiled",
}

_current = "default"


def current() -> str:
    """The stance in force."""
    return _current


def apply(stance: str) -> str:
    """Put a stance in force; returns the one before. The interpreter never runs this while tracing."""
    global _current
    before, _current = _current, stance
    _core.force_eager(stance == "force_eager")
    return before


class set_stance:  # noqa: N801  (called like the function it is to its user)
    """Put a stance in force at once; as a context or decorator, for that long."""

    def __init__(self, stance: str = "default") -> None:
        if not isinstance(stance, str):
            raise OptionTypeError(f"stance={stance!r} is not accepted; use the name of a stance")
        if stance not in STANCES:
            raise OptionValueError(f"stance {stance!r} is not accepted{list_accepted(stance, STANCES)}")
        self.stance = stance
        self.before = apply(stance)

    def __enter__(self) -> None:
        apply(self.stance)

    def __exit__(self, *exc_info: object) -> None:
        apply(self.before)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        apply(self.before)  # a decorator changes nothing until its function is called
        stance = self.stance

        @functools.wraps(fn)
        def run_in_stance(*args: Any, **kwargs: Any) -> Any:
            before = apply(stance)
            try:
                return fn(*args, **kwargs)
            finally:
                apply(before)

        return run_in_stance
