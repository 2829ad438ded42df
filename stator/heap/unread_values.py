"""Values that change too often to be facts.   a str seen with nine values  ->  a stand-in that knows only its class"""

from __future__ import annotations

from typing import Any

from stator.guards.guard import Kind
from stator.heap.services import Heap
from stator.heap.tracker import ShadowKind, VariableTracker
from stator.shapes.varying_values import varying
from stator.source import Source


def adopt_unread(heap: Heap, value: object, source: Source) -> Any:
    """Only the class is guarded; an instruction that looks further breaks."""
    tracker = heap.known(value, source)
    if tracker is None:
        heap.guard(source, Kind.TYPE, type(value))
        tracker = heap.register(VariableTracker(varying(value), value, source, ShadowKind.OPAQUE))
        heap.unread_met = True
    return tracker.standin
