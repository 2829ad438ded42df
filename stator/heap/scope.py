"""A namespace read name by name: the globals of a module, the attributes of a class.

    scope.read("relu")  ->  the stand-in, guarded by that one name
    scope.write("n", 3) ->  kept in an overlay; the user's namespace sees it when the effects are written back
"""

from __future__ import annotations

from typing import Any

from stator.guards.guard import MISSING, Kind
from stator.source import Global, Pinned


class Scope:
    """One outside namespace dict, its overlay of writes and the names already read."""

    __slots__ = ("heap", "namespace", "source", "overlay", "seen")

    def __init__(self, heap: Any, namespace: dict[str, Any]) -> None:
        self.heap = heap
        self.namespace = namespace
        self.source = Pinned(namespace)
        self.overlay: dict[str, Any] = {}  # name -> new value, or MISSING when deleted
        self.seen: dict[str, Any] = {}

    def read(self, name: str) -> Any:
        """The value of a name, or MISSING."""
        if name in self.overlay:
            return self.overlay[name]
        if name in self.seen:
            return self.seen[name]
        if name in self.namespace:
            value = self.heap.adopt(self.namespace[name], Global(self.source, name))
        else:
            value = MISSING
            self.heap.guard(self.source, Kind.ABSENT, name)
        self.seen[name] = value
        return value

    def write(self, name: str, value: Any) -> None:
        self.overlay[name] = value
