"""Run something under the hook and write down what was intercepted.   (hook, answers)  ->  calls, result"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


class Watch:
    """A callback that records every frame by function name and answers from a table (default: RUN)."""

    def __init__(self, hook: ModuleType, **answers: Any) -> None:
        self.hook = hook
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __call__(self, func: Any, args: tuple[Any, ...], closure: Any) -> Any:
        self.calls.append((func.__name__, args))
        return self.answers.get(func.__name__, self.hook.RUN)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """function(*args, **kwargs) intercepted. The frames of this method itself are not."""
        self.hook.set_callback(self)
        self.hook.enter()
        try:
            return function(*args, **kwargs)
        finally:
            self.hook.leave()
            self.hook.set_callback(None)
