"""Broken programs in the style of user code.   held_aside: 40, which no remedy was written for;  development: 40

Each is a factory of a callable and the calls that are recorded of it: `(fn, [args, ...])`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Factory = Callable[[], tuple[Callable[..., Any], list[tuple[Any, ...]]]]


class Programs(dict[str, Factory]):
    """Factories by their names; it is the decorator that adds one."""

    def __call__(self, factory: Factory) -> Factory:
        self[factory.__name__] = factory
        return factory
