"""Probes: one of each kind of object that a program may be handed, read and written inside, changed in between."""

from __future__ import annotations

import array
import collections
import dataclasses
import itertools
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

from probing import Scene, probe, ramp
from scenery import one


def handed(obj: Any, use: Callable[..., Any], change: Callable[[Any], Any], look: Callable[[Any], Any]) -> Scene:
    return Scene(lambda x: use(x, obj), one(ramp()), lambda: change(obj), lambda: look(obj))


@probe()
def chain_map():
    def use(x, maps):
        maps["a"] = maps["a"] + 1
        child = maps.new_child({"z": 1})
        child["q"] = 2
        return x * maps["b"], dict(child), len(maps), list(maps)

    return handed(collections.ChainMap({"a": 1}, {"a": 5, "b": 2}), use, lambda maps: maps.maps[1].update(b=7),
                  lambda maps: maps.maps)


@probe()
def counter():
    def use(x, counts):
        counts.update("ab")
        counts["z"] -= 1
        return x * counts["a"], counts.most_common(1), counts + collections.Counter("a"), counts.total()

    return handed(collections.Counter("aab"), use, lambda counts: counts.update("a"), dict)


@probe()
def deque_with_a_limit():
    def use(x, items):
        items.append(items[-1] + 1)
        items.rotate(1)
        items.appendleft(9)
        return x * items[0], list(items), items.maxlen

    return handed(collections.deque([1, 2, 3], maxlen=4), use, lambda items: items.pop(), list)


@probe()
def default_dict_with_another_factory():
    def use(x, table):
        table["k"].append(1)
        table.default_factory = list
        return x * len(table["k"]), sorted(table)

    return handed(collections.defaultdict(list), use, lambda table: table.clear(),
                  lambda table: (dict(table), table.default_factory))


@probe()
def mapping_proxy():
    behind = {"a": 1}

    def use(x, shown):
        return x * shown["a"], dict(shown), "b" in shown, list(shown.items()), shown | {"z": 1}

    return handed(types.MappingProxyType(behind), use, lambda _: behind.update(a=4), dict)


@probe()
def typed_array():
    def use(x, numbers):
        numbers.append(numbers[0] + 1)
        numbers[1] = 9
        return x * sum(numbers), numbers.tolist(), numbers.typecode

    return handed(array.array("i", [1, 2, 3]), use, lambda numbers: numbers.append(4), list)


@dataclasses.dataclass(slots=True)
class Slotted:
    a: int
    b: list[Any] = dataclasses.field(default_factory=list)


@probe()
def dataclass_with_slots():
    def use(x, record):
        record.a += 1
        record.b.append(record.a)
        return x * record.a, Slotted(5, [x]), record == Slotted(2, [2])

    return handed(Slotted(1), use, lambda record: setattr(record, "a", 8), lambda record: (record.a, list(record.b)))


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: tuple[Any, ...] = ()


@probe()
def dataclass_that_is_frozen():
    def use(x, held):
        record = held[0]
        try:
            record.a = 3
        except dataclasses.FrozenInstanceError as error:
            text = str(error)
        return x * record.a, text, record < Frozen(5), {record: 1}[Frozen(record.a)], dataclasses.replace(record, a=9)

    return handed([Frozen(1)], use, lambda held: held.__setitem__(0, Frozen(2)), list)


class Tagged(list):  # type: ignore[type-arg]
    """A list that counts what is appended."""

    tag = 1

    def append(self, value: Any) -> None:
        self.tag += 1
        super().append(value)


@probe()
def subclass_of_list():
    def use(x, items):
        items.append(x.shape[0])
        return x * items.tag, list(items), items[:1], type(items + [1])

    return handed(Tagged([1]), use, lambda items: items.append(4), lambda items: (list(items), items.tag))


class Filling(dict):  # type: ignore[type-arg]
    """A dict that makes what it lacks."""

    def __missing__(self, key: Any) -> Any:
        self[key] = key * 2
        return self[key]


@probe()
def subclass_of_dict_with_missing():
    return handed(Filling(a=1), lambda x, table: x * table["a"] * len(table["zz"]), lambda table: table.update(a=3), dict)


class Labelled(int):
    label = "t"


@probe()
def subclass_of_int_handed_in():
    return handed([Labelled(3)], lambda x, held: (x * held[0], held[0].label, held[0] + 1, held[0]),
                  lambda held: held.__setitem__(0, Labelled(4)), list)


@probe()
def user_dict_and_user_list():
    def use(x, both):
        table, items = both
        table["n"] = table.get("n", 0) + 1
        items.append(table["n"])
        return x * len(items), dict(table), list(items)

    return handed((collections.UserDict(a=1), collections.UserList([1])), use, lambda both: both[0].update(n=7),
                  lambda both: (dict(both[0]), list(both[1])))


class Refusal(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@probe("SB005 SB006")
def exception_with_attributes():
    def use(x, held):
        held[0].code += 1
        return x * held[0].code, held[0].args, str(held[0])

    return handed([Refusal("no", 3)], use, lambda held: setattr(held[0], "code", 9), lambda held: held[0].code)


@probe()
def exception_made_inside():
    def fn(x):
        try:
            raise Refusal("bad", 5) from ValueError("inner")
        except Refusal as error:
            return x * error.code, error, error.__cause__

    return Scene(fn, one(ramp()))


@probe()
def simple_namespace():
    def use(x, space):
        space.k += 1
        space.z = 4
        return x * space.k, types.SimpleNamespace(a=1) == types.SimpleNamespace(a=1), sorted(vars(space))

    return handed(types.SimpleNamespace(k=1), use, lambda space: setattr(space, "k", 8), lambda space: dict(vars(space)))


# ---------------------------------------------------------------------- iterators, each advanced by every call


def numbers() -> Iterator[int]:
    yield from range(100)


@probe()
def iterators_that_are_read():
    several = [itertools.chain([1, 2], [3, 4, 5, 6]), filter(None, [0, 1, 2, 0, 3, 4, 5]), iter({1: 1, 2: 2, 3: 3, 4: 4, 5: 5}),
               iter({1: 1, 2: 2, 3: 3, 4: 4, 5: 5}.values()), reversed([1, 2, 3, 4, 5]), itertools.count(3, 2),
               itertools.repeat(3, 7), iter(range(2, 20, 3))]
    return Scene(lambda x: x * sum([next(each) for each in several]), one(ramp()),
                 lambda: [next(each) for each in several])


@probe()
def iterator_that_cycles():
    turns = itertools.cycle([1, 2, 3])
    return Scene(lambda x: x * next(turns), one(ramp()), lambda: next(turns))


@probe("SB014")
def iterators_over_a_generator():
    several = [itertools.islice(numbers(), 3, 40, 2), map(operator.neg, numbers()), filter(None, numbers()),
               enumerate(numbers())]

    def use(items: Any) -> Any:
        first, second, third, fourth = items
        return next(first) + next(second) + next(third) + sum(next(fourth))

    return Scene(lambda x: x * use(several), one(ramp()), lambda: [next(each) for each in several])


@probe("SB014")
def iterators_over_a_set_and_a_deque():
    both = iter({1, 2, 3, 4, 5, 6}), iter(collections.deque([1, 2, 3, 4, 5, 6]))
    return Scene(lambda x: x * next(both[0]) + next(both[1]), one(ramp()), lambda: [next(each) for each in both])


@probe("SB014 SB024")
def iterators_that_combine():
    several = [itertools.product([1, 2], [3, 4, 5]), itertools.pairwise([1, 2, 3, 4, 5, 6]),
               itertools.zip_longest([1, 2, 3, 4, 5], [1], fillvalue=0)]
    return Scene(lambda x: x * sum([sum(next(each)) for each in several]), one(ramp()),
                 lambda: [next(each) for each in several])


class Contrary(list):
    """Says something else of itself than it holds."""

    def __iter__(self):
        raise TypeError("not to be run through")

    def __setitem__(self, index, value):
        super().__setitem__(index, value * 100)


class ContraryDeque(collections.deque):
    def __iter__(self):
        yield from (7, 8)

    def __setitem__(self, index, value):
        raise TypeError("not to be written to")


@probe()
def sequences_that_say_something_else_of_themselves():
    items, queue = Contrary([1, 2, [3]]), ContraryDeque([1, 2, [3]])

    def fn(x):
        items[1] = 2
        items[2].append(4)
        queue.append(5)
        return x * items[0], len(items), list.__len__(items), items == [1, 200, [3, 4]], [*queue], queue[2], queue

    return Scene(fn, one(ramp()), lambda: (list.append(items, 9), queue.pop()),
                 lambda: (list(list.__iter__(items)), list(collections.deque.__iter__(queue))))
