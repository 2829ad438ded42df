"""Special methods that a class gets, loses or gets again between calls, and C code that asks for them.

Each row reaches an object directly or through a container.  Where eager's answer depends on a method, the compiled
function must follow it: as the method comes, goes, and comes again.
"""

from __future__ import annotations

import bisect
import collections
import collections.abc
import functools
import heapq
import itertools
import math
import operator
import typing
from typing import Any

import pytest
import torch

import stator


class Base:
    def __init__(self, n: int) -> None:
        self.n = n


def removed(items, value):
    items.remove(value)
    return items


def updated(table, value):
    table.update(value)
    return table


def kw(**given):
    return given


def pos(*given):
    return given


def sorted_in_place(items):
    items.sort()
    return items


def extended(items, value):
    items.extend(value)
    return items


def slice_set(items, value):
    items[:1] = value
    return items


def unpacked(value):
    first, second = value
    return first, second


def heaped(items):
    heapq.heapify(items)
    return items


def iadded(value):
    value += 1
    return value


def list_iadded(value):
    items = [1]
    items += value
    return items


def matched(value):
    match value:
        case [first, second]:
            return first, second
        case {"n": n}:
            return n
        case _:
            return 0


def matched_value(value):
    match value:
        case 3:
            return 1
        case _:
            return 2


def discarded(items, value):
    items.discard(value)
    return items


def defaulted(key):
    table = collections.defaultdict(int, {3: 1})
    table[key] += 1
    return list(table.values())


def plain(value):
    return object.__repr__(value)


ROWS: list[Any] = [
    lambda x, a, b, objs: [a] == [3],
    lambda x, a, b, objs: [a] == [b],
    lambda x, a, b, objs: [a] != [3],
    lambda x, a, b, objs: (a,) == (3,),
    lambda x, a, b, objs: (1, a) < (1, b),
    lambda x, a, b, objs: [a] < [b],
    lambda x, a, b, objs: [a, 1] <= [b, 0],
    lambda x, a, b, objs: [[a]] == [[3]],
    lambda x, a, b, objs: {"k": a} == {"k": 3},
    lambda x, a, b, objs: 3 in [a],
    lambda x, a, b, objs: 3 in (a, b),
    lambda x, a, b, objs: a in [3, 4],
    lambda x, a, b, objs: a in objs,
    lambda x, a, b, objs: 3 in objs,
    lambda x, a, b, objs: [a, 3].index(3),
    lambda x, a, b, objs: objs.index(b),
    lambda x, a, b, objs: [a, b, 3].count(3),
    lambda x, a, b, objs: objs.count(3),
    lambda x, a, b, objs: removed([a, 3], 3),
    lambda x, a, b, objs: {a: 1},
    lambda x, a, b, objs: {a: 1}.get(b),
    lambda x, a, b, objs: {3: 1}.get(a),
    lambda x, a, b, objs: a in {3: 1},
    lambda x, a, b, objs: {a, b},
    lambda x, a, b, objs: a in {3},
    lambda x, a, b, objs: {a} & {b},
    lambda x, a, b, objs: {a} & {3},
    lambda x, a, b, objs: {a} | {3},
    lambda x, a, b, objs: {a} <= {3},
    lambda x, a, b, objs: frozenset([a, b]),
    lambda x, a, b, objs: set(objs),
    lambda x, a, b, objs: dict.fromkeys(objs),
    lambda x, a, b, objs: len(collections.Counter(objs)),
    lambda x, a, b, objs: dict(a),
    lambda x, a, b, objs: dict({}, k=1) | dict(a),
    lambda x, a, b, objs: updated({}, a),
    lambda x, a, b, objs: {**a},
    lambda x, a, b, objs: kw(**a),
    lambda x, a, b, objs: list(a),
    lambda x, a, b, objs: tuple(a),
    lambda x, a, b, objs: [*a],
    lambda x, a, b, objs: pos(*a),
    lambda x, a, b, objs: sorted(objs),
    lambda x, a, b, objs: sorted(a),
    lambda x, a, b, objs: sorted(objs, key=operator.attrgetter("n")),
    lambda x, a, b, objs: sorted_in_place([b, a]),
    lambda x, a, b, objs: sorted([(1, a), (1, b)]),
    lambda x, a, b, objs: max(objs),
    lambda x, a, b, objs: min(objs),
    lambda x, a, b, objs: max((1, a), (1, b)),
    lambda x, a, b, objs: sum(objs),
    lambda x, a, b, objs: sum([1, a]),
    lambda x, a, b, objs: any(objs),
    lambda x, a, b, objs: all(objs),
    lambda x, a, b, objs: any(map(bool, objs)),
    lambda x, a, b, objs: list(filter(None, objs)),
    lambda x, a, b, objs: "".join(objs),
    lambda x, a, b, objs: ",".join(["x", a]),
    lambda x, a, b, objs: "%s" % a,
    lambda x, a, b, objs: "%s-%s" % (a, 1),
    lambda x, a, b, objs: "%d" % a,
    lambda x, a, b, objs: "%x" % (a,),
    lambda x, a, b, objs: "%f" % a,
    lambda x, a, b, objs: "%r" % a,
    lambda x, a, b, objs: f"{a}" == plain(a),
    lambda x, a, b, objs: f"{a:>5}",
    lambda x, a, b, objs: str([a, 1]) == "[" + plain(a) + ", 1]",
    lambda x, a, b, objs: str({"k": a}) == "{'k': " + plain(a) + "}",
    lambda x, a, b, objs: repr((a,)) == "(" + plain(a) + ",)",
    lambda x, a, b, objs: str({a}) == "{" + plain(a) + "}",
    lambda x, a, b, objs: "{}".format(a) == plain(a),
    lambda x, a, b, objs: "{0.n}".format(a),
    lambda x, a, b, objs: "{0[0]}".format(a),
    lambda x, a, b, objs: "{n}".format_map(a),
    lambda x, a, b, objs: "{}".format([a]) == f"[{plain(a)}]",
    lambda x, a, b, objs: str(a) == plain(a),
    lambda x, a, b, objs: repr(a) == plain(a),
    lambda x, a, b, objs: format(a, "") == plain(a),
    lambda x, a, b, objs: format(a, "d"),
    lambda x, a, b, objs: bool(a),
    lambda x, a, b, objs: not a,
    lambda x, a, b, objs: 1 if a else 2,
    lambda x, a, b, objs: int(a),
    lambda x, a, b, objs: float(a),
    lambda x, a, b, objs: operator.index(a),
    lambda x, a, b, objs: [1, 2, 3, 4, 5, 6][a],
    lambda x, a, b, objs: [1, 2, 3, 4, 5, 6][:a],
    lambda x, a, b, objs: list(range(a)),
    lambda x, a, b, objs: [1] * a,
    lambda x, a, b, objs: "x" * a,
    lambda x, a, b, objs: bytes(a),
    lambda x, a, b, objs: bytes([1, a]),
    lambda x, a, b, objs: bytes(bytearray([a])),
    lambda x, a, b, objs: hex(a),
    lambda x, a, b, objs: chr(a),
    lambda x, a, b, objs: round(a),
    lambda x, a, b, objs: abs(a),
    lambda x, a, b, objs: divmod(a, 2),
    lambda x, a, b, objs: divmod(7, a),
    lambda x, a, b, objs: pow(a, 2),
    lambda x, a, b, objs: pow(2, a),
    lambda x, a, b, objs: pow(2, a, 5),
    lambda x, a, b, objs: complex(a),
    lambda x, a, b, objs: len(a),
    lambda x, a, b, objs: next(iter(a)),
    lambda x, a, b, objs: list(enumerate(a)),
    lambda x, a, b, objs: list(zip(a, [1, 2])),
    lambda x, a, b, objs: [list(z) for z in zip(*[a, [1, 2]])],
    lambda x, a, b, objs: list(map(str, a)),
    lambda x, a, b, objs: list(itertools.chain(a, [1])),
    lambda x, a, b, objs: list(itertools.chain.from_iterable([a, [1]])),
    lambda x, a, b, objs: list(itertools.islice(a, 2)),
    lambda x, a, b, objs: list(itertools.islice([1, 2, 3, 4, 5], a)),
    lambda x, a, b, objs: list(reversed(a)),
    lambda x, a, b, objs: list(collections.deque(a)),
    lambda x, a, b, objs: 3 in collections.deque([a]),
    lambda x, a, b, objs: collections.deque([a]) == collections.deque([3]),
    lambda x, a, b, objs: extended([], a),
    lambda x, a, b, objs: slice_set([1, 2], a),
    lambda x, a, b, objs: unpacked(a),
    lambda x, a, b, objs: functools.reduce(operator.add, [1, a]),
    lambda x, a, b, objs: functools.reduce(operator.mul, [a, 2]),
    lambda x, a, b, objs: list(itertools.accumulate([1, a])),
    lambda x, a, b, objs: len(list(itertools.groupby([a, b, 3]))),
    lambda x, a, b, objs: heapq.heappop(heaped([(1, b), (1, a)])),
    lambda x, a, b, objs: heapq.nsmallest(1, objs),
    lambda x, a, b, objs: bisect.bisect([1, 5], a),
    lambda x, a, b, objs: bisect.bisect_left([a], 2),
    lambda x, a, b, objs: math.floor(a),
    lambda x, a, b, objs: math.ceil(a),
    lambda x, a, b, objs: math.trunc(a),
    lambda x, a, b, objs: math.sqrt(a),
    lambda x, a, b, objs: math.fsum([1.0, a]),
    lambda x, a, b, objs: math.prod([2, a]),
    lambda x, a, b, objs: math.gcd(4, a),
    lambda x, a, b, objs: math.hypot(3.0, a),
    lambda x, a, b, objs: math.isclose(a, 3.0),
    lambda x, a, b, objs: math.dist([1.0, a], [1.0, 2.0]),
    lambda x, a, b, objs: sum(x * y for x, y in zip([a], [2])),
    lambda x, a, b, objs: callable(a),
    lambda x, a, b, objs: hash(a) == object.__hash__(a),
    lambda x, a, b, objs: hash((a, 1)) == hash((object.__hash__(a), 1)),
    lambda x, a, b, objs: a == 3,
    lambda x, a, b, objs: a < b,
    lambda x, a, b, objs: a + 1,
    lambda x, a, b, objs: 1 + a,
    lambda x, a, b, objs: iadded(a),
    lambda x, a, b, objs: a * 2,
    lambda x, a, b, objs: -a,
    lambda x, a, b, objs: 3 in a,
    lambda x, a, b, objs: a[0],
    lambda x, a, b, objs: [1] + a,
    lambda x, a, b, objs: "x" + a,
    lambda x, a, b, objs: a in "xyz",
    lambda x, a, b, objs: "xyz".startswith(a),
    lambda x, a, b, objs: "xyz".replace("x", a),
    lambda x, a, b, objs: "x,y".split(a),
    lambda x, a, b, objs: str(a, "ascii"),
    lambda x, a, b, objs: operator.concat(a, [1]),
    lambda x, a, b, objs: operator.countOf([a, 3], 3),
    lambda x, a, b, objs: operator.indexOf([a, 3], 3),
    lambda x, a, b, objs: operator.contains([a], 3),
    lambda x, a, b, objs: operator.length_hint(a),
    lambda x, a, b, objs: operator.eq([a], [3]),
    lambda x, a, b, objs: operator.itemgetter(0)(a),
    lambda x, a, b, objs: operator.methodcaller("keys")(a),
    lambda x, a, b, objs: sorted(objs, key=functools.cmp_to_key(lambda p, q: p.n - q.n))[0].n,
    lambda x, a, b, objs: isinstance(a, collections.abc.Iterable),
    lambda x, a, b, objs: isinstance(a, collections.abc.Hashable),
    lambda x, a, b, objs: isinstance(a, collections.abc.Sized),
    lambda x, a, b, objs: isinstance(a, collections.abc.Callable),
    lambda x, a, b, objs: isinstance(a, collections.abc.Container),
    lambda x, a, b, objs: isinstance(a, typing.SupportsInt),
    lambda x, a, b, objs: hasattr(a, "__len__"),
    lambda x, a, b, objs: torch.tensor([1, a]),
    lambda x, a, b, objs: torch.tensor(a),
    lambda x, a, b, objs: x * a,
    lambda x, a, b, objs: a * x,
    lambda x, a, b, objs: x[a],
    lambda x, a, b, objs: torch.zeros(a),
    lambda x, a, b, objs: torch.full((2,), a),
    lambda x, a, b, objs: torch.stack([x, x])[a],
    lambda x, a, b, objs: str(ValueError(a)) == plain(a),
    lambda x, a, b, objs: str(ValueError(a, 1)) == "(" + plain(a) + ", 1)",
    lambda x, a, b, objs: slice(a, 1) == slice(3, 1),
    lambda x, a, b, objs: a in range(5),
    lambda x, a, b, objs: functools.partial(divmod, a)(2),
    lambda x, a, b, objs: "xx".count(a),
    lambda x, a, b, objs: list(zip([1], a, strict=True)),
    lambda x, a, b, objs: dict([a]),
    lambda x, a, b, objs: dict(zip(objs, [1, 2])),
    lambda x, a, b, objs: matched(a),
    lambda x, a, b, objs: matched_value(a),
    lambda x, a, b, objs: discarded({a}, 3),
    lambda x, a, b, objs: {a} ^ {3},
    lambda x, a, b, objs: {3: 1}.setdefault(a, 5),
    lambda x, a, b, objs: {3: 1}.pop(a, 7),
    lambda x, a, b, objs: collections.ChainMap({3: 1}).get(a),
    lambda x, a, b, objs: defaulted(a),
    lambda x, a, b, objs: "x".ljust(a),
    lambda x, a, b, objs: list({"k": a}.values()) == [3],
    lambda x, a, b, objs: {"k": a}.items() == {"k": 3}.items(),
    lambda x, a, b, objs: ("k", 3) in {"k": a}.items(),
    lambda x, a, b, objs: 3 in {"k": a}.values(),
    lambda x, a, b, objs: {a: 1}.keys() & {3},
    lambda x, a, b, objs: list_iadded(a),
    lambda x, a, b, objs: 3 in {"k": [a]}["k"],
    lambda x, a, b, objs: (3, 1) in {(a, 1): 2},
    lambda x, a, b, objs: ([a], 1) == ([3], 1),
    lambda x, a, b, objs: {"k": [a]} == {"k": [3]},
    lambda x, a, b, objs: "%r" % (a,) == plain(a),
    lambda x, a, b, objs: "{!r}".format(a) == plain(a),
    lambda x, a, b, objs: f"{a!r}" == plain(a),
    lambda x, a, b, objs: (1, 2, 3)[:a],
    lambda x, a, b, objs: "abc"[0:3:a],
    lambda x, a, b, objs: list(range(3)[:a]),
    lambda x, a, b, objs: int("12", base=a),
]


def number(other: Any) -> Any:
    return other.n if isinstance(other, Base) else other


METHODS: dict[str, dict[str, Any]] = {
    "eq": {"__eq__": lambda self, other: self.n == number(other)},
    "eq and hash": {"__eq__": lambda self, other: self.n == number(other), "__hash__": lambda self: hash(self.n)},
    "keys and items": {"keys": lambda self: ["n", "m"], "__getitem__": lambda self, key: {"n": 9, "m": 8}[key]},
    **{name: {name: method} for name, method in {
        "__ne__": lambda self, other: False,
        "__lt__": lambda self, other: self.n < number(other),
        "__gt__": lambda self, other: self.n > number(other),
        "__le__": lambda self, other: self.n <= number(other),
        "__hash__": lambda self: hash(self.n),
        "__bool__": lambda self: False,
        "__len__": lambda self: 0,
        "__iter__": lambda self: iter([("p", 1), ("q", 2)]),
        "__getitem__": lambda self, key: [4, 5][key] if isinstance(key, int) else 9,
        "keys": lambda self: ["n", "m"],
        "__contains__": lambda self, value: True,
        "__index__": lambda self: 2,
        "__int__": lambda self: 5,
        "__float__": lambda self: 2.5,
        "__complex__": lambda self: 1j,
        "__str__": lambda self: "str!",
        "__repr__": lambda self: "repr!",
        "__format__": lambda self, spec: "format!" + spec,
        "__bytes__": lambda self: b"by",
        "__abs__": lambda self: 11,
        "__neg__": lambda self: 12,
        "__round__": lambda self, *digits: 13,
        "__trunc__": lambda self: 14,
        "__floor__": lambda self: 15,
        "__ceil__": lambda self: 16,
        "__divmod__": lambda self, other: (1, 2),
        "__rdivmod__": lambda self, other: (3, 4),
        "__pow__": lambda self, other, modulus=None: 17,
        "__rpow__": lambda self, other, modulus=None: 18,
        "__add__": lambda self, other: 19,
        "__radd__": lambda self, other: 20,
        "__mul__": lambda self, other: 21,
        "__rmul__": lambda self, other: 22,
        "__iadd__": lambda self, other: 23,
        "__reversed__": lambda self: iter([7]),
        "__length_hint__": lambda self: 3,
        "__call__": lambda self, *args: 1,
        "__next__": lambda self: 1,
        "__rand__": lambda self, other: 25,
        "__getattr__": lambda self, name: [5].__getitem__(name.startswith("__")),
    }.items()},
}


def shown(value: Any) -> Any:
    if isinstance(value, Base):
        return "K", vars(value)
    if isinstance(value, torch.Tensor):
        return "tensor", value.dtype, value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value), [shown(each) for each in value]
    if isinstance(value, dict):
        return dict, [(shown(key), shown(each)) for key, each in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(shown(each)) for each in value)
    return type(value), value if isinstance(value, (int, float, complex, str, bytes, type(None))) else None


def outcome(function: Any, *args: Any) -> Any:
    try:
        return shown(function(*args))
    except Exception as error:
        return type(error), str(error)


def world() -> tuple[type, tuple[Any, ...]]:
    cls = type("K", (Base,), {})
    a, b = cls(3), cls(4)
    return cls, (torch.arange(6.0), a, b, [a, b])


def change(cls: type, methods: dict[str, Any]) -> None:
    """Take the methods away where the class has them, else give them to it."""
    for name, method in methods.items():
        delattr(cls, name) if name in vars(cls) else setattr(cls, name, method)


@pytest.mark.parametrize("number_of_row", range(len(ROWS)))
def test_c_code_follows(number_of_row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    row = ROWS[number_of_row]
    decided = []
    for name, methods in METHODS.items():
        cls, args = world()
        before = outcome(row, *args)
        change(cls, methods)
        if outcome(row, *args) != before:
            decided.append(name)
    for name in decided:
        for there in (False, True):
            cls, args = world()
            if there:
                change(cls, METHODS[name])
            compiled = stator.compile(row, backend="eager")
            for step in range(3):
                assert outcome(compiled, *args) == outcome(row, *args), (name, there, step)
                change(cls, METHODS[name])
    if not decided:  # an error of its own, whatever the class has
        assert outcome(stator.compile(row, backend="eager"), *world()[1])[0] is outcome(row, *world()[1])[0]
