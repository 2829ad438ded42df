"""Lengths of lists from outside.   len(self.history), seen with two lengths  ->  a symbol

In: a stand-in and what the policy has learned.  Out: how long it is as a symbolic number, as long as the program has
only appended to it; MISSING where the length is the constant that the stand-in shows.
"""

from __future__ import annotations

import collections
import operator
from typing import Any

from stator.heap.tracker import ShadowKind
from stator.interp.lookup import MISSING
from stator.interp.numbers.symbolic_numbers import attempt
from stator.interp.services import VM
from stator.source import CallOf, Pinned

_LISTS = (list, collections.deque)


def symbolic_length(vm: VM, value: Any) -> Any:
    """The length of a list from outside, if it is left open."""
    if type(value) not in _LISTS:
        return MISSING
    tracker = vm.heap.by_standin.get(id(value))
    if tracker is None or tracker.shape is not ShadowKind.LIST or tracker.exposed \
            or not vm.heap.shapes.opens_length(tracker.source):
        return MISSING
    added = len(value) - len(tracker.initial)
    if added < 0 or not all(box.is_current(item) for box, item in zip(tracker.initial, value, strict=False)):
        return MISSING
    source = CallOf(Pinned(len), (tracker.source,))
    if source not in vm.heap.answers:
        vm.heap.answers[source] = vm.recorder.add_number(len(tracker.initial), source)
    return attempt(operator.add, vm.heap.answers[source], added)


def knows_item(vm: VM, value: Any, index: int) -> bool:
    """Whether an item's place in a list from outside does not depend on how long the list is."""
    tracker = vm.heap.by_standin.get(id(value))
    if tracker is None or tracker.shape is not ShadowKind.LIST:
        return True
    held = len(tracker.initial)
    if index >= 0:
        return index < held and len(value) >= held
    return held - len(value) <= index and all(
        box.is_current(item) for box, item in zip(tracker.initial, value, strict=False))
