"""Dicts that tell when they change (3.12 and later): what is not looked at again must not have changed."""

import ctypes
import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from agreement import program

import stator
from stator import _core
from stator.guards.guard import Guard, Kind
from stator.source import DictOf, Key, Local

X = Local("x", 0)


class Node:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def settled(guards: list[Guard], *args: Any) -> Any:
    compiled = program(guards, (), nargs=len(args))
    assert [compiled.check(args) for _ in range(3)] == [-1, -1, -1]
    return compiled


def of(*names: str) -> Any:
    source: Any = X
    for name in names:
        source = Key(DictOf(source), name)
    return source


@pytest.fixture(autouse=True)
def watching() -> Iterator[None]:
    gc.collect()
    before = _core.watch_count()
    node = Node(n=1)
    compiled = settled([Guard(of("n"), Kind.EQUALS, 1)], node)
    if _core.watch_count() == before:
        pytest.skip("this CPython has no dict watchers")
    del compiled, node
    gc.collect()
    assert _core.watch_count() == before
    yield
    gc.collect()
    assert _core.watch_count() == before, "a program that is gone still watches"


def tree() -> Any:
    return Node(child=Node(n=1, other=0), table={"a": 1}, hooks=OrderedDict())


def facts() -> list[Guard]:
    return [Guard(of("child", "n"), Kind.EQUALS, 1), Guard(Key(of("table"), "a"), Kind.EQUALS, 1),
            Guard(of("hooks"), Kind.LEN, 0), Guard(DictOf(of("child")), Kind.ABSENT, "gone")]


CHANGES: dict[str, tuple[Callable[[Any], object], int]] = {
    "attribute": (lambda x: setattr(x.child, "n", 2), 0),
    "another attribute": (lambda x: setattr(x.child, "other", 2), -1),
    "the same value": (lambda x: setattr(x.child, "n", 1), -1),
    "through the dict": (lambda x: x.child.__dict__.update(n=2), 0),
    "deleted": (lambda x: delattr(x.child, "n"), 0),
    "a new key": (lambda x: setattr(x.child, "gone", 2), 3),
    "another dict": (lambda x: setattr(x.child, "__dict__", {"n": 2}), 0),
    "an equal dict": (lambda x: setattr(x.child, "__dict__", {"n": 1}), -1),
    "another child": (lambda x: setattr(x, "child", Node(n=2)), 0),
    "an equal child": (lambda x: setattr(x, "child", Node(n=1)), -1),
    "item": (lambda x: x.table.__setitem__("a", 2), 1),
    "popped": (lambda x: x.table.popitem(), 1),
    "cleared": (lambda x: x.table.clear(), 1),
    "merged": (lambda x: x.table.__ior__({"a": 2}), 1),
    "cleared and merged": (lambda x: (x.table.clear(), x.table.update({"a": 2})), 1),
    "default": (lambda x: (x.table.clear(), x.table.setdefault("a", 2)), 1),
    "hook": (lambda x: x.hooks.__setitem__(1, print), 2),
    "hook, behind its back": (lambda x: dict.__setitem__(x.hooks, 1, print), 2),
    "hook, come and gone": (lambda x: (x.hooks.__setitem__(1, print), x.hooks.popitem()), -1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_at_once_and_ever_after(name: str) -> None:
    change, failed = CHANGES[name]
    x = tree()
    compiled = settled(facts(), x)
    change(x)
    assert [compiled.check((x,)) for _ in range(3)] == [failed] * 3
    assert settled(facts(), tree()).check((x,)) == failed


def test_a_dict_that_is_written_to_at_every_call_stays_watched() -> None:
    x = tree()
    compiled = settled(facts(), x)
    for number in range(100):
        x.child.other = x.table["count"] = number
        assert compiled.check((x,)) == -1
    x.child.n = 2
    assert compiled.check((x,)) == 0


def test_a_dict_that_is_no_longer_reached_decides_nothing() -> None:
    x = tree()
    compiled = settled(facts(), x)
    old = x.table
    x.table = {"a": 1}
    old["a"] = 2
    assert compiled.check((x,)) == -1


def test_dicts_that_die_leave_nothing_behind() -> None:
    x = tree()
    compiled = settled(facts(), x)
    for number in range(50):
        x.table, x.child = {"a": 1}, Node(n=1)
        assert compiled.check((x,)) == -1
        x.table = {"a": number + 2}  # likely where the last one was
        assert compiled.check((x,)) == 1
        x.table = {"a": 1}
        assert compiled.check((x,)) == -1


def test_a_dict_made_where_another_died_is_not_taken_for_it() -> None:
    """Nobody is told of what happens to a new dict, wherever it is."""
    x = tree()
    compiled = settled(facts(), x)
    again = 0
    for _ in range(20):
        address = id(x.table)
        del x.table
        x.table = {"a": 1}
        again += id(x.table) == address
        assert compiled.check((x,)) == -1
        x.table["a"] = 2
        assert compiled.check((x,)) == 1
        x.table["a"] = 1
        assert [compiled.check((x,)) for _ in range(3)] == [-1, -1, -1]
    assert again, "no dict was made where the last one was"


def test_a_dict_that_is_about_to_change_is_looked_at_once_more() -> None:
    """Another watcher asks after ours was told, and before the dict changes."""
    x, early = tree(), []
    compiled = settled(facts(), x)

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 3)
    def on_event(*event: object) -> int:
        early.append(compiled.check((x,)))
        return 0

    api = ctypes.pythonapi
    watcher = api.PyDict_AddWatcher(on_event)
    assert watcher >= 0
    try:
        assert api.PyDict_Watch(watcher, ctypes.py_object(x.table)) == 0
        x.table["a"] = 2
        assert early == [-1]
        assert [compiled.check((x,)) for _ in range(3)] == [1, 1, 1]
    finally:
        api.PyDict_Unwatch(watcher, ctypes.py_object(x.table))
        api.PyDict_ClearWatcher(watcher)


def test_several_programs_are_told_and_one_that_ends_takes_nothing_from_the_others() -> None:
    x = tree()
    first, second = settled(facts(), x), settled(facts(), x)
    x.child.n = 2
    assert (first.check((x,)), second.check((x,))) == (0, 0)
    x.child.n = 1
    first, second = settled(facts(), x), settled(facts(), x)
    del first
    x.child.n = 2
    assert second.check((x,)) == 0


def test_the_model_may_die_before_its_program() -> None:
    x = tree()
    compiled = settled(facts(), x)
    del x
    gc.collect()
    x = tree()
    assert [compiled.check((x,)) for _ in range(3)] == [-1, -1, -1]
    x.hooks[1] = print
    assert compiled.check((x,)) == 2


def test_a_compiled_model_sees_what_happens_to_its_modules() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(4))).eval()
    compiled = stator.compile(model, backend="eager")
    x = torch.randn(2, 3)
    for _ in range(4):
        compiled(x)
    handle = model[2].register_forward_hook(lambda module, args, out: out * 2)
    assert torch.equal(compiled(x), model(x))
    handle.remove()
    assert torch.equal(compiled(x), model(x))
    model[1] = torch.nn.Linear(3, 3)
    assert torch.equal(compiled(x), model(x))
    model[3]._parameters["weight"] = torch.nn.Parameter(torch.ones(3, 3))
    assert torch.equal(compiled(x), model(x))
    stator.reset()
