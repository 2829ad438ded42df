"""Make one call again and again, each time from the same state.   Trials(fn, args, kwargs).run(other)  ->  Outcome

Operators of torch itself can be undone and repeated.  A custom operator and a collective cannot: `unrepeatable` names
the first one of an eager run, and that run is then the call itself.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from stator.audit.checkpoint import Checkpoint
from stator.audit.comparison import Outcome, differences, run
from stator.audit.reach import Origin, Reached, origin_of, parts, reach
from stator.graph.analysis.mutation import is_repeatable, is_repeatable_target
from stator.settings import marks


class Unrepeatable(TorchDispatchMode):
    """Watch the operators of a block, and keep the name of the first that must not run twice."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.found: str | None = None

    def __torch_dispatch__(self, func: Callable[..., Any], kinds: object, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        if self.found is None and not is_repeatable_target(func):
            self.found = str(func)
        return func(*args, **(kwargs or {}))


def reaches_whole_function(reached: dict[int, Reached]) -> bool:
    """Whether there is a function that graphs hold whole: no operator tells what it does."""
    return any(type(each.value) is types.FunctionType and marks.allowed_in_graph(each.value)
               for each in reached.values())


def unrepeatable_node(tag: Any) -> str:
    """Name what a captured graph calls and must not run twice; empty where there is no such call."""
    graph = None if tag.residual is None else tag.residual.graph
    for node in () if graph is None else graph.graph.nodes:
        if not is_repeatable(node):
            return str(getattr(node.target, "__qualname__", node.target))
    return ""


_EXACT = ("eager", "eager_noexcept", "aot_eager")


class Trials:
    """One call; `run` leaves everything as it was before."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], exact: bool) -> None:
        self.fn, self.args, self.kwargs, self.exact = fn, args, kwargs, exact
        self.reached = reach(fn, args, kwargs)
        self.before = Checkpoint(self.reached)
        self.unrepeatable: str | None = None  # an operator of the eager run that must not run twice

    def attempt(self, callee: Callable[..., Any], quiet: bool = True) -> Outcome:
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
            return local if origin_of(frame.f_code.co_filename) is Origin.PROGRAM else None

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


def fingerprint(value: object) -> Any:
    own = [(name, id(part)) for name, part in parts(value)]
    return own, getattr(value, "_version", None) if hasattr(type(value), "_version") else None


def is_exact(backend: object) -> bool:
    """Whether a backend computes bit for bit what eager does; of a callable that is not known."""
    return backend in _EXACT if isinstance(backend, str) else True
