"""Proofs of a call are checked again by comparing memory: every way to change it between calls must be seen."""

import gc
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from agreement import program

import stator
from stator.guards.guard import Guard, Kind
from stator.guards.tensor_meta import tensor_meta
from stator.source import Attr, CallOf, CellOf, DictOf, Index, Key, Local, Pinned, Slot, Source
from tests.unit.guards.plain_semantics import check

X = Local("x", 0)


class Holder:
    __slots__ = ("place", "__dict__")


class Other(Holder):
    __slots__ = ()


class Twin:
    """Laid out as a Holder, and none."""

    __slots__ = ("place", "__dict__")


def note_of(holder: Any) -> Any:
    """A reader: what it says of an object is no part of what it is."""
    return NOTES.get(id(holder), 0)


NOTES: dict[int, int] = {}
DECOYS: list[Any] = []


def of(*names: str) -> Source:
    """x.a.b.c"""
    source: Source = X
    for name in names:
        source = Key(DictOf(source), name)
    return source


def make() -> Any:
    """An object over which every kind of fact can be had."""
    holder: Any = Holder()
    holder.child = Holder()
    holder.child.child = Holder()
    holder.child.child.n = 1
    holder.child.place = 5
    holder.items = [Holder(), 2, 3]
    holder.items[0].n = 1
    holder.pair = (Holder(), 2)
    holder.pair[0].n = 1
    holder.queue = deque([1, 2])
    holder.names = {"a", "b"}
    holder.hooks = OrderedDict()
    holder.weight = torch.nn.Parameter(torch.zeros(2, 3))
    holder.buffer = torch.zeros(2, 2, 2, 2, 2, 2)
    holder.view = torch.zeros(4, 4)[1:]
    holder.plain = torch.zeros(3)
    holder.rows = [1, Holder(), 3]
    holder.rows[1].n = 1
    holder.odd = Holder()
    holder.odd.place = 7
    outer = 1

    def function(n: int = 3) -> int:
        return n + outer

    holder.function = function
    holder.bound = holder.function.__get__(holder.child)
    return holder


def facts(holder: Any) -> list[Guard]:
    cell = Index(Attr(of("function"), "__closure__"), 0)
    return [
        Guard(X, Kind.TYPE, Holder), Guard(of("child"), Kind.TYPE, Holder), Guard(of("child", "child", "n"), Kind.EQUALS, 1),
        Guard(Slot(of("child"), "place", Holder), Kind.EQUALS, 5),
        Guard(of("child", "child"), Kind.SLOT_EMPTY, ("place", Holder)),
        Guard(of("items"), Kind.LEN, 3), Guard(Key(DictOf(Index(of("items"), 0)), "n"), Kind.EQUALS, 1),
        Guard(Index(of("items"), 1), Kind.EQUALS, 2), Guard(Key(DictOf(Index(of("pair"), 0)), "n"), Kind.EQUALS, 1),
        Guard(Index(of("queue"), 1), Kind.EQUALS, 2), Guard(of("names"), Kind.LEN, 2),
        Guard(of("names"), Kind.SET_EQUALS, frozenset({"a", "b"})), Guard(of("hooks"), Kind.LEN, 0),
        Guard(of("weight"), Kind.TENSOR, tensor_meta(holder.weight)),
        Guard(of("buffer"), Kind.TENSOR, tensor_meta(holder.buffer)),
        Guard(of("view"), Kind.TENSOR, tensor_meta(holder.view)),
        Guard(Attr(of("function"), "__code__"), Kind.ID, holder.function.__code__),
        Guard(Index(Attr(of("function"), "__defaults__"), 0), Kind.EQUALS, 3),
        Guard(CellOf(cell), Kind.EQUALS, 1), Guard(Attr(of("function"), "__kwdefaults__"), Kind.ID, None),
        Guard(Attr(of("bound"), "__self__"), Kind.TYPE, Holder), Guard(DictOf(X), Kind.ABSENT, "gone"),
        Guard(Pinned(Holder), Kind.TYPE_ATTR, ("place", Holder.place)),
        Guard(of("plain"), Kind.TENSOR, tensor_meta(holder.plain)),
        Guard(Key(DictOf(Index(of("rows"), 1)), "n"), Kind.EQUALS, 1), Guard(Index(of("rows"), 2), Kind.EQUALS, 3),
        Guard(Slot(of("odd"), "place", Holder), Kind.EQUALS, 7),
        Guard(CallOf(Pinned(note_of), (of("odd"),)), Kind.FRESH_CALL, 0),
    ]  # fmt: skip


def set_cell(holder: Any) -> None:
    holder.function.__closure__[0].cell_contents = 2


def flip_class(holder: Any) -> None:
    holder.child.child.__class__ = Other
    holder.child.__class__ = Other


def move_rows(holder: Any) -> None:
    """Another item, as many as before, elsewhere in memory; where they were looks as it did."""
    one, two, three = holder.rows
    holder.rows.extend(range(1000))
    DECOYS.extend([one, two, three] for _ in range(200))  # one of them gets the memory that the list has left
    del holder.rows[3:]
    holder.rows[1] = Holder()
    holder.rows[1].n = 2


def swap(holder: Any) -> None:
    torch.utils.swap_tensors(holder.weight, torch.nn.Parameter(torch.zeros(5)))


CHANGES: dict[str, Callable[[Any], object]] = {
    "attribute": lambda h: setattr(h.child.child, "n", 2),
    "attribute deleted": lambda h: delattr(h.child.child, "n"),
    "object replaced": lambda h: setattr(h, "child", make().items[0]),
    "dict replaced": lambda h: setattr(h.child.child, "__dict__", {"n": 7}),
    "dict emptied": lambda h: h.child.__dict__.clear(),
    "class": flip_class,
    "class of the root": lambda h: setattr(h, "__class__", Other),
    "slot": lambda h: setattr(h.child, "place", 6),
    "slot filled": lambda h: setattr(h.child.child, "place", 6),
    "list item": lambda h: h.items.__setitem__(1, 7),
    "list item's attribute": lambda h: setattr(h.items[0], "n", 7),
    "list grown": lambda h: h.items.append(1),
    "list shrunk": lambda h: h.items.pop(),
    "list emptied": lambda h: h.items.clear(),
    "tuple item's attribute": lambda h: setattr(h.pair[0], "n", 7),
    "deque item": lambda h: h.queue.__setitem__(1, 7),
    "set": lambda h: h.names.add("c"),
    "set, same size": lambda h: (h.names.remove("a"), h.names.add("c")),
    "hook": lambda h: h.hooks.update({1: 2}),
    "weight's data": lambda h: setattr(h.weight, "data", torch.zeros(3, 2)),
    "weight's dtype": lambda h: setattr(h.weight, "data", torch.zeros(2, 3, dtype=torch.float64)),
    "weight's strides": lambda h: setattr(h.weight, "data", torch.zeros(3, 2).t()),
    "weight's gradient": lambda h: h.weight.requires_grad_(False),
    "weight swapped": swap,
    "weight's class": lambda h: setattr(h, "weight", h.weight.detach()),
    "many dimensions": lambda h: h.buffer.unsqueeze_(0),
    "many dimensions, strides": lambda h: h.buffer.transpose_(0, 1).resize_(2, 2, 2, 2, 2, 3),
    "many dimensions, as many items": lambda h: h.buffer.resize_(2, 2, 2, 2, 1, 4),
    "plain tensor's gradient": lambda h: h.plain.requires_grad_(True),
    "base's flag": lambda h: h.view._base.requires_grad_(True),
    "rows shrunk": lambda h: h.rows.pop(),
    "rows moved": move_rows,
    "class of a slot": lambda h: setattr(h.odd, "__class__", Twin),
    "what a reader says": lambda h: NOTES.update({id(h.odd): 1}),
    "view's gradient": lambda h: h.view.requires_grad_(True),
    "base's gradient": lambda h: h.view._base.mul_(torch.ones((), requires_grad=True)),
    "code": lambda h: setattr(h.function, "__code__", (lambda n=3: outer_code(n)).__code__.replace(
        co_freevars=h.function.__code__.co_freevars)),
    "default": lambda h: setattr(h.function, "__defaults__", (4,)),
    "keyword default": lambda h: setattr(h.function, "__kwdefaults__", {"n": 1}),
    "cell": set_cell,
    "absent key": lambda h: setattr(h, "gone", 1),
}  # fmt: skip


def outer_code(n: int) -> int:
    return n


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_seen(name: str) -> None:
    holder = make()
    guards = facts(holder)
    compiled = program(guards, [of("weight")], nargs=1)
    assert [compiled.check((holder,)) for _ in range(4)] == [-1] * 4
    CHANGES[name](holder)
    failing = [i for i, guard in enumerate(guards) if not check(guard, (holder,))]
    assert failing, "the change changes nothing"
    for _ in range(3):
        assert compiled.check((holder,)) in failing
    assert program(guards, nargs=1).check((holder,)) in failing
    NOTES.clear()
    DECOYS.clear()


def test_unrelated_changes_are_taken_in() -> None:
    holder = make()
    compiled = program(facts(holder), [of("weight"), of("child", "child")], nargs=1)
    for number in range(50):
        holder.other = number
        holder.child.other = number
        Holder.counter = number  # type: ignore[attr-defined]
        if number % 10 == 0:
            holder.weight = torch.nn.Parameter(torch.ones(2, 3))
        if number % 7 == 0:
            fresh = Holder()
            fresh.n = 1
            holder.child.child = fresh
        assert compiled.values((holder,)) == (holder.weight, holder.child.child)
    del Holder.counter  # type: ignore[attr-defined]


def test_arguments_that_are_other_objects_each_time() -> None:
    first, second = make(), make()
    compiled = program(facts(first)[:9], [of("child", "child")], nargs=1)
    for holder in [first, second] * 10:
        assert compiled.values((holder,)) == (holder.child.child,)
    second.child.child.n = 9
    assert [compiled.check((each,)) == -1 for each in [first, second] * 3] == [True, False] * 3


def test_a_failed_try_spoils_nothing() -> None:
    """A dict that fails half-way is looked at again from what the certificate was made of."""
    holder = make()
    deep = Guard(of("child", "child", "n"), Kind.EQUALS, 1)
    flag = Guard(of("flag"), Kind.EQUALS, True)
    holder.flag = True
    compiled = program([deep, flag], [of("child")], nargs=1)
    assert [compiled.check((holder,)) for _ in range(3)] == [-1] * 3
    replaced = make().child
    replaced.child.n = 2
    holder.flag, holder.child = False, replaced
    assert compiled.check((holder,)) >= 0
    holder.flag = True
    assert compiled.check((holder,)) == 0
    replaced.child.n = 1
    assert compiled.values((holder,)) == (replaced,)


def test_dead_objects_are_never_read() -> None:
    """Objects proven last time may be gone: each place is read only when its owner has been proven alive."""
    holder = make()
    compiled = program(facts(holder), [of("weight")], nargs=1)
    for _ in range(200):
        fresh = make()
        assert compiled.check((holder,)) == -1
        vars(holder).clear()
        vars(holder).update(vars(fresh))
        del fresh
        gc.collect(0)
        junk = [bytes(64 * n) for n in range(20)]
        compiled.check((holder,))  # the closure's cell is another one: whatever the answer, nothing crashes
        holder = make()
        compiled = program(facts(holder), [of("weight")], nargs=1)
        del junk


def test_a_reader_that_lets_other_threads_in() -> None:
    """While a reader runs, another thread replaces what was proven before: the values handed over are alive."""
    holder = make()

    def reader(value: Any) -> int:
        vars(holder)["weight"] = torch.nn.Parameter(torch.zeros(2, 3))
        gc.collect(0)
        return 1

    guards = [*facts(holder), Guard(CallOf(Pinned(reader), (of("child"),)), Kind.FRESH_CALL, 1)]
    compiled = program(guards, [of("weight")], nargs=1)
    answers: list[Any] = []

    def work() -> None:
        for _ in range(50):
            values = compiled.values((holder,))
            if values is not None:
                answers.append(tuple(values[0].shape))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers and set(answers) == {(2, 3)}


def test_the_fields_of_a_class() -> None:
    """Its ancestors come with its version, its names do not."""
    class Base:
        pass

    class Other:
        pass

    class Changing(Base):
        pass

    guards = [Guard(Pinned(Changing), Kind.TYPE_FIELD, (name, getattr(Changing, name)))
              for name in ("__mro__", "__bases__", "__name__", "__qualname__")]
    compiled = program(guards, nargs=0)
    assert [compiled.check(()) for _ in range(4)] == [-1] * 4
    for name, value in (("__bases__", (Other,)), ("__name__", "Another"), ("__qualname__", "Another")):
        before = getattr(Changing, name)
        setattr(Changing, name, value)
        assert all(compiled.check(()) >= 0 for _ in range(3))
        setattr(Changing, name, before if type(before) is tuple else "".join(list(before)))  # an equal one is as good
        assert [compiled.check(()) for _ in range(3)] == [-1] * 3


def test_a_class_that_was_looked_at_since() -> None:
    """A class that changes loses its version; the next lookup gives it another one, which is no sign that nothing changed."""
    class Changing:
        first, second = object(), object()

    before = Changing.first
    guards = [Guard(Pinned(Changing), Kind.TYPE_ATTR, ("first", before))]
    compiled = program(guards, nargs=0)
    assert [compiled.check(()) for _ in range(4)] == [-1] * 4
    Changing.first = Changing.second
    assert all(Changing().first is Changing.second for _ in range(3000))
    assert [compiled.check(()) for _ in range(3)] == [0] * 3
    Changing.first = before
    assert all(Changing().first is before for _ in range(3000))
    assert [compiled.check(()) for _ in range(3)] == [-1] * 3


def number(text: str) -> float:
    return float(text)  # a new object: CPython takes the memory of the last one that was freed


def in_a_list() -> Any:
    items = [number("1.5")]

    def renew(text: str) -> None:
        items.clear()
        items.append(number(text))

    return (lambda x: x * items[0]), renew


def in_a_cell() -> Any:
    value: Any = number("1.5")

    def renew(text: str) -> None:
        nonlocal value
        value = None
        value = number(text)

    return (lambda x: x * value), renew


def in_a_slot() -> Any:
    holder: Any = Holder()
    holder.place = number("1.5")

    def renew(text: str) -> None:
        holder.place = None
        holder.place = number(text)

    return (lambda x: x * holder.place), renew


def in_a_tuple_of_a_list() -> Any:
    items: list[Any] = [(number("1.5"), 2)]

    def renew(text: str) -> None:
        items.clear()
        items.append((number(text), 2))

    return (lambda x: x * items[0][0] + len(items[0])), renew


@pytest.mark.parametrize("make_program", [in_a_list, in_a_cell, in_a_slot, in_a_tuple_of_a_list])
def test_a_new_number_at_the_address_of_the_old_one(make_program: Callable[[], Any]) -> None:
    fn, renew = make_program()
    compiled = stator.compile(fn, backend="eager", dynamic=False)
    x = torch.ones(2)
    for turn in range(8):
        renew("1.5")
        for _ in range(2):
            assert torch.equal(compiled(x), fn(x))  # an equal number, and no longer the one of the capture
        renew(f"{turn % 4 + 2}.5")
        assert torch.equal(compiled(x), fn(x)), turn
