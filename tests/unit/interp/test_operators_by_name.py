"""The functions of `operator`, descriptors called by hand, and partials, over objects that tell what they are asked."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.comparison import same_as_eager

PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(fn: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[fn.__name__] = fn
    return fn


class Telling:
    """Notes each special method that is called."""

    __slots__ = ("n", "log")

    def __init__(self, n: int) -> None:
        self.n, self.log = n, []

    def __contains__(self, item: Any) -> bool:
        self.log.append(("contains", item))
        return item == self.n

    def __delitem__(self, key: Any) -> None:
        self.log.append(("delete", key))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.log.append(("set", key, value))

    def __getitem__(self, key: Any) -> Any:
        self.log.append(("get", key))
        return self.n + key

    def __bool__(self) -> bool:
        self.log.append(("truth",))
        return self.n > 1

    def __invert__(self) -> int:
        self.log.append(("invert",))
        return ~self.n

    def __neg__(self) -> int:
        self.log.append(("negative",))
        return -self.n

    def __add__(self, other: Any) -> Any:
        self.log.append(("add", other))
        return self.n + other

    def __iadd__(self, other: Any) -> Telling:
        self.log.append(("add to", other))
        self.n += other
        return self

    def __lt__(self, other: Any) -> bool:
        self.log.append(("less", other))
        return self.n < other

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.log.append((args, kwargs))
        return self.n


class Described:
    scale = 10

    def __init__(self, n: int) -> None:
        self.n = n

    def method(self, k: int, *, more: int = 0) -> int:
        return self.n + k + more

    @classmethod
    def of_class(cls, k: int) -> tuple[str, int]:
        return cls.__name__, cls.scale + k

    @staticmethod
    def of_nobody(k: int) -> int:
        return k * 2

    unreadable = property()

    @property
    def doubled(self) -> int:
        return self.n * 2

    @doubled.setter
    def doubled(self, value: int) -> None:
        self.n = value // 2


class Forgetting:
    @property
    def n(self) -> int:
        return 1

    @n.deleter
    def n(self) -> None:
        self.log.append("deleted")


class Below(Described):
    scale = 20


@program
def membership(x: Any, o: Telling, d: dict[int, int]) -> Any:
    return x + 1, operator.contains(o, 3), operator.contains(d, 1), operator.contains([1, 2], o.n), o.log


@program
def items(x: Any, o: Telling, d: dict[int, int]) -> Any:
    operator.setitem(o, 1, 2)
    operator.delitem(o, 4)
    operator.setitem(d, 9, o.n)
    if operator.contains(d, 1):
        operator.delitem(d, 1)
    return x * operator.getitem(o, 2), operator.getitem(d, 9), d, o.log


@program
def truths(x: Any, o: Telling, d: dict[int, int]) -> Any:
    return x + operator.truth(o), operator.not_(o), operator.not_(d), operator.truth([]), o.log


@program
def identities(x: Any, o: Telling, d: dict[int, int]) -> Any:
    return x, operator.is_(o, o), operator.is_not(o, d), operator.is_(o.n, None), operator.is_not(None, None)


@program
def unary(x: Any, o: Telling, d: dict[int, int]) -> Any:
    return operator.neg(x), operator.invert(o), operator.inv(o.n), operator.neg(o), operator.pos(o.n), o.log


@program
def binary(x: Any, o: Telling, d: dict[int, int]) -> Any:
    p = operator.iadd(o, 2)
    return operator.add(x, o.n), operator.add(o, 3), p is o, operator.mul(x, 2), operator.lt(o, 3), operator.ge(o.n, 2), \
        operator.iadd([1], [2]), o.log


@program
def getters(x: Any, o: Telling, d: dict[int, int]) -> Any:
    d.setdefault(1, 7)
    return operator.attrgetter("n")(o), operator.attrgetter("n", "n.real")(o), operator.itemgetter(1)(d), \
        operator.itemgetter(1, 2)(o), operator.methodcaller("__getitem__", 5)(o), operator.methodcaller("add", 1)(x), o.log


@program
def bound_by_hand(x: Any, o: Telling, d: dict[int, int]) -> Any:
    made = Below(o.n)
    names = Described.__dict__
    return x, names["method"].__get__(made)(1, more=2), names["of_class"].__get__(made)(1), \
        names["of_class"].__get__(None, Described)(2), names["of_nobody"].__get__(made)(4), names["of_nobody"](5), \
        names["doubled"].__get__(made), names["doubled"].__get__(None, Described) is names["doubled"]


@program
def set_by_hand(x: Any, o: Telling, d: dict[int, int]) -> Any:
    made = Described(o.n)
    Described.__dict__["doubled"].__set__(made, 8)
    Forgetting.__dict__["n"].__delete__(o)
    return x * made.n, Telling.__dict__["n"].__get__(o), Telling.__dict__["n"].__get__(None, Telling) is Telling.n, o.log


@program
def refused(x: Any, o: Telling, d: dict[int, int]) -> Any:
    made, names = Described(o.n), Described.__dict__
    for access, args in ((names["doubled"].__delete__, (made,)), (names["method"].__get__, ()),
                         (names["method"].__get__, (None,)), (names["of_class"].__get__, (None, None)),
                         (names["of_nobody"].__get__, (None,)), (Telling.__dict__["n"].__get__, (None,)),
                         (names["doubled"].__get__, (None, None)), (Forgetting.__dict__["n"].__set__, (made, 3)), (names["unreadable"].__get__, (made,))):
        try:
            access(*args)
        except (AttributeError, TypeError) as error:
            o.log.append((type(error), str(error)))
    return x, o.log


@program
def called_by_name(x: Any, o: Telling, d: dict[int, int]) -> Any:
    made = Described(o.n)
    return x, made.method.__call__(2, more=1), Described.method.__call__(made, 3), o.__call__(1, k=2), \
        torch.add.__call__(x, 1), len.__call__("abc"), str.join.__call__("-", ["a", "b"]), "ab".upper.__call__(), \
        int.__add__.__call__(o.n, 4), dict.fromkeys.__call__([1], 2), operator.call(o, 5, k=6), operator.call(torch.neg, x), \
        o.log


@program
def partials(x: Any, o: Telling, d: dict[int, int]) -> Any:
    made = functools.partial(Described.method, Described(o.n), more=5)
    return x + made(1), made.__call__(2), made(3, more=4), functools.partial(o, 1, a=2)(3, b=4), o.log


@program
def aliases(x: Any, o: Telling, d: dict[int, int]) -> Any:
    made = list[int]((o.n, 2))
    return x, made, type(made), dict[str, int](a=1)


@program
def a_new_property(x: Any, o: Telling, d: dict[int, int]) -> Any:
    class Local:
        def read(self) -> int:
            return o.n

        value = property(read)
        value = value.setter(lambda self, given: o.log.append(given))
        value = value.deleter(lambda self: o.log.append("gone"))
        other = value.getter(lambda self: 5)

    made = Local()
    made.value = 4
    del made.value
    return x + made.value, made.other, o.log


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name: str) -> None:
    """Called three times, with another object and other keys."""
    def given(n: int) -> Any:
        return lambda: ((torch.ones(2) * n, Telling(n), {n: 3, 5: 6}), {})

    same_as_eager(PROGRAMS[name], given(1), given(3), given(1), given(2))
