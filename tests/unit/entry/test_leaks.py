"""100,000 calls leave no reference and no memory behind."""

import gc
import resource
import sys
from collections import deque
from typing import Any

import pytest
import torch

from stator._core import EAGER, CompiledFunction, GuardProgram
from stator.guards.guard import Guard, Kind, global_state, tensor_meta
from stator.guards.lower import lower
from stator.source import (
    WORLD,
    Attr,
    CallOf,
    DictOf,
    Index,
    Key,
    KeyAt,
    Local,
    Pinned,
    SetAt,
    TypeOf,
    ValueAt,
)

CALLS = 100_000
X = Local("x", 0)


class Node:
    def __init__(self) -> None:
        self.n, self.xs, self.table, self.set = 3, [object()], {"a": object()}, {object()}
        self.queue, self.tensor = deque([object()]), torch.ones(2, requires_grad=True)
        self.tensor.grad = torch.ones(2)
        self.fn = lambda a=object(): a  # noqa: B008


def attribute(name: str) -> Key:
    return Key(DictOf(X), name)


SOURCES = [
    attribute("n"), Index(attribute("xs"), 0), KeyAt(attribute("table"), 0), ValueAt(attribute("table"), 0),
    SetAt(attribute("set"), 0), Index(attribute("queue"), 0), Attr(attribute("tensor"), "grad"), TypeOf(X),
    Index(Attr(attribute("fn"), "__defaults__"), 0), CallOf(Pinned(len), (attribute("xs"),)),
]  # fmt: skip


def whole_program(node: Node) -> GuardProgram:
    guards = [
        Guard(X, Kind.TYPE, Node), Guard(attribute("n"), Kind.EQUALS, 3), Guard(WORLD, Kind.GLOBAL_STATE, global_state()),
        Guard(attribute("tensor"), Kind.TENSOR, tensor_meta(node.tensor)), Guard(attribute("xs"), Kind.LEN, 1),
        Guard(attribute("table"), Kind.KEYS, ("a",)), Guard(Pinned(Node), Kind.TYPE_ATTR, ("__init__", Node.__init__)),
        Guard(CallOf(Pinned(len), (attribute("xs"),)), Kind.FRESH_CALL, 1),
    ]  # fmt: skip
    lowered = lower(guards, SOURCES)
    return GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, 1)


def values_of(node: Node) -> list[Any]:
    return [
        node, node.xs, node.xs[0], node.table, node.table["a"], next(iter(node.set)), node.queue[0], node.tensor,
        node.tensor.grad, node.fn.__defaults__, None, Node, 3,
    ]  # fmt: skip


def counts(objects: list[Any]) -> list[int]:
    return [sys.getrefcount(obj) for obj in objects]


def resident_kib() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() // 1024


def f(x: Any, *rest: Any, k: int = 1, **extra: Any) -> None:
    return None


SCENES = {
    "hit": lambda entry, node: entry(node),
    "hit with keywords": lambda entry, node: entry(x=node, k=2, z=node),
    "hit with rest": lambda entry, node: entry(node, node, node),
    "miss": lambda entry, node: entry(node.xs),
    "miss with keywords": lambda entry, node: entry(x=node.xs, z=node),
    "binding error": lambda entry, node: pytest.raises(TypeError, entry),
    "read fails late": lambda entry, node: entry(OTHER),
}
OTHER = Node()
OTHER.queue = deque()


@pytest.mark.parametrize("name", SCENES)
def test_calls_leave_nothing_behind(name: str) -> None:
    scene, node = SCENES[name], Node()
    entry = CompiledFunction(f, lambda self, bound, args, kwargs: None)
    entry.add_entry(whole_program(node), lambda *values: None)
    # pytest.raises itself is slow; its scene makes a hundredth of the calls.
    calls = CALLS // 100 if name == "binding error" else CALLS
    watched = values_of(node) + values_of(node)[:1] + [entry, f]
    for _ in range(calls // 10):
        scene(entry, node)
    gc.collect()
    before, memory = counts(watched), resident_kib()
    for _ in range(calls):
        scene(entry, node)
    gc.collect()
    # None is shared with the whole process, whose earlier garbage may go now: a leak is one for each call.
    changes = [a - b for a, b in zip(counts(watched), before, strict=True)]
    assert all(abs(change) < max(50, calls // 100) for change in changes), changes
    assert resident_kib() - memory < 2048


def test_programs_and_entries_are_freed() -> None:
    node = Node()
    watched = values_of(node)
    gc.collect()
    before = counts(watched)
    for _ in range(300):
        entry = CompiledFunction(f, lambda *args: None, (node,))
        entry.add_entry(whole_program(node), EAGER, node)
        entry()
        entry.entries(), entry.hits(), entry.last_failures()
        with pytest.raises((ValueError, TypeError)):
            GuardProgram([(1, -1, node), (3, 0, "malformed")], [], [], 0)
    del entry
    gc.collect()
    assert all(abs(a - b) < 50 for a, b in zip(counts(watched), before, strict=True))
