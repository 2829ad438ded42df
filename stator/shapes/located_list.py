"""A list that remembers the user's line at which each item was added.   env.guards.append(g)  ->  lines[-1]"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class LocatedList(list[Any]):
    """torch's shape environment appends its guards to this; `lines` says which line of the program asked."""

    def __init__(self, locate: Callable[[], Any]) -> None:
        super().__init__()
        self.locate = locate
        self.lines: list[Any] = []

    def append(self, item: Any) -> None:
        super().append(item)
        self.lines.append(self.locate())
