"""Facts behind versions: a cached answer is dropped as soon as the dict or the class changes."""

import gc
import types
from collections import OrderedDict
from typing import Any

import torch
from agreement import program

from stator.guards.guard import MISSING, Guard, Kind
from stator.source import DictOf, Global, Index, Key, KeyAt, Local, Pinned, ValueAt
from tests.unit.guards.plain_semantics import check

X = Local("x", 0)


class Node:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def settled(guards: list[Guard], *args: Any, wanted: Any = ()) -> Any:
    """A program that has passed often enough to have cached what it caches."""
    compiled = program(guards, wanted, nargs=len(args))
    assert [compiled.check(args) for _ in range(3)] == [-1, -1, -1]
    return compiled


def test_globals_are_reread_after_any_change() -> None:
    module = types.ModuleType("m")
    scope = Pinned(vars(module))
    module.n, module.f, module.other = 3, len, 0  # type: ignore[attr-defined]
    guards = [
        Guard(Global(scope, "n"), Kind.EQUALS, 3), Guard(Global(scope, "f"), Kind.ID, len),
        Guard(scope, Kind.ABSENT, "open"),
    ]  # fmt: skip
    compiled = settled(guards, wanted=[Global(scope, "f")])
    module.other = 1  # type: ignore[attr-defined]
    assert compiled.check(()) == -1
    module.n = 4  # type: ignore[attr-defined]
    assert compiled.check(()) == 0
    module.n = 3  # type: ignore[attr-defined]
    assert compiled.values(()) == (len,)
    vars(module)["open"] = 1
    assert compiled.check(()) == 2
    del vars(module)["open"]
    module.f = max  # type: ignore[attr-defined]
    assert compiled.check(()) == 1
    del module.f
    assert compiled.check(()) == 1


def test_every_way_to_change_a_dict_is_seen() -> None:
    changes = {
        "assign": lambda d: d.__setitem__("k", 2),
        "delete": lambda d: d.__delitem__("k"),
        "pop": lambda d: d.pop("k"),
        "clear": lambda d: d.clear(),
        "update": lambda d: d.update(k=2),
        "or": lambda d: d.__ior__({"k": 2}),
        "popitem": lambda d: d.popitem(),
    }
    for name, change in changes.items():
        table = {"k": 1}
        compiled = settled([Guard(Key(X, "k"), Kind.EQUALS, 1)], table)
        change(table)
        assert compiled.check((table,)) == 0, name


def test_instance_attributes_are_seen_however_they_are_set() -> None:
    def store(obj: Any, value: int) -> None:
        obj.n = value

    node = Node()
    for _ in range(20):  # let CPython specialise the store
        store(node, 1)
    guard = Guard(Key(DictOf(X), "n"), Kind.EQUALS, 1)
    compiled = settled([guard], node)
    for _ in range(20):
        store(node, 2)
        assert compiled.check((node,)) == 0
        store(node, 1)
        assert compiled.check((node,)) == -1
    setattr(node, "n", 3)
    assert compiled.check((node,)) == 0
    node.__dict__ = {"n": 1}
    assert compiled.check((node,)) == -1
    node.__dict__ = {"n": 5}
    assert compiled.check((node,)) == 0


def test_a_fresh_object_keeps_its_attributes_apart() -> None:
    compiled = settled([Guard(Key(DictOf(X), "n"), Kind.EQUALS, 1)], Node(n=1))
    for value in range(5):
        assert compiled.check((Node(n=value),)) == (-1 if value == 1 else 0)
        gc.collect()


def test_mutable_children_are_checked_behind_an_unchanged_dict() -> None:
    xs = [1]
    node = Node(xs=xs, child=Node(n=1))
    guards = [
        Guard(Index(Key(DictOf(X), "xs"), 0), Kind.EQUALS, 1),
        Guard(Key(DictOf(Key(DictOf(X), "child")), "n"), Kind.EQUALS, 1),
        Guard(Key(DictOf(X), "child"), Kind.TYPE, Node),
    ]
    compiled = settled(guards, node)
    xs[0] = 2
    assert compiled.check((node,)) == 0
    xs[0] = 1
    node.child.n = 2
    assert compiled.check((node,)) == 1
    node.child.n = 1
    node.child.__class__ = type("Other", (Node,), {})
    assert compiled.check((node,)) == 2


def test_an_ordered_dict_may_change_its_order_alone() -> None:
    table = OrderedDict(a=1, b=2)
    guards = [
        Guard(X, Kind.KEYS, ("a", "b")),
        Guard(KeyAt(X, 0), Kind.EQUALS, "a"),
        Guard(ValueAt(X, 1), Kind.EQUALS, 2),
    ]
    for guard in guards:
        compiled = settled([guard], table)
        table.move_to_end("a")
        assert compiled.check((table,)) == 0 and not check(guard, (table,))
        table.move_to_end("b")
        assert compiled.check((table,)) == -1


def test_class_attributes_are_reread_after_a_change() -> None:
    class Base:
        limit = 3

    class Derived(Base):
        pass

    guards = [
        Guard(Pinned(Derived), Kind.TYPE_ATTR, ("limit", Base.limit)),
        Guard(Pinned(Derived), Kind.TYPE_ATTR, ("speed", MISSING)),
        Guard(Pinned(Base), Kind.TYPE_ATTR, ("limit", Base.limit)),
    ]
    compiled = settled(guards)
    Base.unrelated = 1  # type: ignore[attr-defined]
    assert compiled.check(()) == -1
    Derived.limit = 4
    assert compiled.check(()) == 0
    del Derived.limit
    assert compiled.check(()) == -1
    Base.speed = 1  # type: ignore[attr-defined]
    assert compiled.check(()) == 1
    del Base.speed  # type: ignore[attr-defined]
    Derived.__bases__ = (type("New", (), {"limit": 3.5}),)
    assert compiled.check(()) == 0


def test_a_module_tree_is_cached_and_refreshed() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ReLU())
    linear = Key(Key(DictOf(X), "_modules"), "0")
    weight = Key(Key(DictOf(linear), "_parameters"), "weight")
    guards = [
        Guard(X, Kind.TYPE, torch.nn.Sequential), Guard(Key(DictOf(linear), "training"), Kind.EQUALS, True),
        Guard(Key(DictOf(X), "_modules"), Kind.KEYS, ("0", "1")),
    ]  # fmt: skip
    compiled = settled(guards, model, wanted=[weight])
    assert compiled.values((model,)) == (model[0].weight,)
    fresh = torch.nn.Parameter(torch.zeros(1, 1))
    model[0].weight = fresh
    assert compiled.values((model,))[0] is fresh
    model.eval()
    assert compiled.check((model,)) == 1
    model.train().append(torch.nn.ReLU())
    assert compiled.check((model,)) == 2


def test_a_failed_recheck_leaves_nothing_cached() -> None:
    table = {"a": 1, "b": 1}
    compiled = settled([Guard(Key(X, "a"), Kind.EQUALS, 1), Guard(Key(X, "b"), Kind.EQUALS, 1)], table)
    table["b"] = 2
    assert [compiled.check((table,)) for _ in range(3)] == [1, 1, 1]


def test_the_collector_is_left_as_it_was() -> None:
    compiled = program([Guard(Key(DictOf(X), "n"), Kind.EQUALS, 1)])
    for switch, expected in ((gc.disable, False), (gc.enable, True)):
        switch()
        assert compiled.check((Node(n=1),)) == -1 and compiled.check((3,)) == 0
        assert gc.isenabled() is expected
