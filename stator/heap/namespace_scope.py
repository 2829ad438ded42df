"""A namespace read name by name: the globals of a module, the attributes of a class.

    scope.read("relu")  ->  the stand-in, guarded by that one name
    scope.write("n", 3) ->  kept in an overlay; the user's namespace sees it when the effects are written back
"""

from __future__ import annotations

from typing import Any

from stator.guards.guard import MISSING, Kind
from stator.heap.box import unbox
from stator.heap.services import Heap
from stator.host.suspended_patches import names_of_module
from stator.source import Global, Pinned


class Scope:
    """One outside namespace dict, its overlay of writes and the names already read."""

    __slots__ = ("heap", "namespace", "source", "overlay", "reborn", "seen", "shadow")

    def __init__(self, heap: Heap, namespace: dict[str, Any]) -> None:
        self.heap = heap
        self.namespace = namespace
        self.source = Pinned(namespace)
        self.overlay: dict[str, Any] = {}  # name -> new value, or MISSING when deleted
        self.reborn: set[str] = set()  # deleted and written again: last in the namespace from now on
        self.seen: dict[str, Any] = {}
        self.shadow: dict[str, Any] | None = None  # once the program holds the namespace itself

    def forget(self) -> None:
        """The trace is over."""
        self.overlay.clear()
        self.seen.clear()
        self.shadow = None

    def view(self) -> dict[str, Any]:
        """The namespace as a value (`globals()`, `module.__dict__`): from now on a shadow holds its names."""
        if self.shadow is None:
            shadow = self.heap.adopt(self.namespace, self.source)
            if self.overlay:
                self.heap.note_write(shadow)
            for name, value in self.overlay.items():
                if value is MISSING or name in self.reborn:
                    shadow.pop(name, None)
                if value is not MISSING:
                    shadow[name] = value
            self.overlay.clear()
            self.seen.clear()
            self.shadow = shadow
        return self.shadow

    def _read_shadow(self, name: str) -> Any:
        assert self.shadow is not None
        value = self.shadow.get(name, MISSING)
        if value is MISSING and name not in self.heap.by_standin[id(self.shadow)].initial:
            self.heap.guard(self.source, Kind.ABSENT, name)
        return unbox(value)

    def read(self, name: str) -> Any:
        """The value of a name, or MISSING."""
        if self.shadow is not None:
            return self._read_shadow(name)
        if name in self.overlay:
            return self.overlay[name]
        if name in self.seen:
            return self.seen[name]
        if self.heap.changes.reached:
            self.heap.changes.refuse_reached(self.namespace, name)
        names = names_of_module(self.namespace)
        if name in names:
            value = self.heap.adopt(names[name], Global(self.source, name))
        else:
            value = MISSING
            self.heap.guard(self.source, Kind.ABSENT, name)
        self.seen[name] = value
        return value

    def write(self, name: str, value: object) -> None:
        self.heap.changes.writes += 1
        if self.shadow is None:
            if self.overlay.get(name) is MISSING:
                self.reborn.add(name)
            self.overlay[name] = value
            return
        self.heap.note_write(self.shadow)
        if value is MISSING:
            del self.shadow[name]
        else:
            self.shadow[name] = value
