"""One unread place of an outside container.

    Box(raw value, how to name the place)  --force-->  the stand-in, with the guard that pins what was read

A shadow is a real container whose places hold boxes; reading a place forces its box. So an element
nobody reads costs nothing and is guarded by nothing.
"""

from __future__ import annotations

from typing import Any

from stator.breaks import Break
from stator.heap.services import Heap
from stator.source import Source


class Box:
    """A place of an outside object that has not been read yet (or has: then `value` is its stand-in)."""

    __slots__ = ("heap", "raw", "make", "base", "key", "value", "forced")

    def __init__(self, heap: Heap, raw: Any, make: Any, base: Source, key: Any) -> None:
        self.heap = heap
        self.raw = raw
        self.make = make  # the Source class of the place; called as make(base, key) only when forced
        self.base = base
        self.key = key
        self.forced = False

    def source(self) -> Source:
        return self.make(self.base, self.key) if self.key is not NO_KEY else self.make(self.base)

    def force(self) -> Any:
        if not self.forced:
            source, known = self.source(), id(self.raw) in self.heap.by_original
            try:
                self.value = self.heap.adopt(self.raw, source)
            except Break as stop:  # no stand-in: the object itself, and a break where it is used
                if not known:
                    self.heap.take_back(self.raw)
                if stop.code == "SB019" or stop.stack or type(self.raw) in (list, tuple):
                    # The trace would keep it alive; a function of the program's broke, and stands in the middle; nobody
                    # asks a list whether it is a stand-in.
                    raise
                self.value = self.heap._adopt_opaque(self.raw, source)
                self.heap.refused[id(self.raw)] = stop
            self.forced = True
        return self.value

    def is_current(self, value: object) -> bool:
        """Whether `value`, found in this place at the end of the trace, is what was there at the start."""
        return value is self or (self.forced and value is self.value)


NO_KEY = object()


def unbox(value: object) -> Any:
    """The stand-in for a value just read from a container."""
    return value.force() if type(value) is Box else value
