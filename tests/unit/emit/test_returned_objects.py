"""Classes and exceptions made inside, rebuilt by the residual program and compared with eager Python."""

from __future__ import annotations

import collections
import dataclasses
import enum
import gc
import types
from typing import Any

import pytest
import torch

import stator
from tests.comparison import GraphCounter, call, same_as_eager


def t() -> torch.Tensor:
    return torch.arange(3.0)


# ---------------------------------------------------------------------- classes made inside


def plain_class(x: Any) -> Any:
    class Point:
        """A point."""

        kind = "point"
        __slots__ = ("x", "y")

        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

        def moved(self, by: Any) -> Any:
            return __class__(self.x + by, self.y)  # type: ignore[name-defined]  # noqa: F821

    return Point, Point(x + 1, 2).moved(3)


def derived_class(x: Any) -> Any:
    class Base:
        def f(self) -> Any:
            return 1

    class Derived(Base, dict):  # type: ignore[type-arg]
        @property
        def p(self) -> Any:
            return self["k"]

        @staticmethod
        def s() -> int:
            return 4

        @classmethod
        def c(cls) -> Any:
            return cls.__name__

        def f(self) -> Any:
            return super().f() + 1

    return Derived(k=x + 1)


def made_dataclass(x: Any) -> Any:
    @dataclasses.dataclass(frozen=True)
    class Pair:
        a: Any
        b: int = 3
        c: list[int] = dataclasses.field(default_factory=list)

    return Pair(x + 1), Pair(1) == Pair(1), dataclasses.replace(Pair(1), b=5).b


def made_namedtuple(x: Any) -> Any:
    Point = collections.namedtuple("Point", "x y", defaults=[0])
    return Point(x + 1), Point(1, 2)._replace(y=5), Point._fields


def made_enum(x: Any) -> Any:
    class Colour(enum.Enum):
        RED = 1
        GREEN = "g"

    return Colour.RED.name, Colour("g").value, [c.name for c in Colour], Colour.RED is Colour(1), x + 1


def test_classes_made_inside() -> None:
    compiled = stator.compile(plain_class, backend="eager", fullgraph=True)
    Point, p = compiled(t())
    assert Point.__name__ == "Point" and Point.__doc__ == "A point." and Point.kind == "point"
    assert type(p) is Point and p.x.tolist() == [4.0, 5.0, 6.0] and not hasattr(p, "__dict__")
    assert type(p.moved(1)) is Point
    assert compiled(t())[0] is not Point  # each call makes a class of its own


def test_a_class_with_bases_and_descriptors() -> None:
    d = stator.compile(derived_class, backend="eager", fullgraph=True)(t())
    assert d.f() == 2 and d.s() == 4 and d.c() == "Derived" and d.p is d["k"]
    assert type(d).__mro__[2] is dict


@pytest.mark.parametrize("fn", [made_dataclass, made_namedtuple, made_enum])
def test_library_classes_made_inside(fn: Any) -> None:
    same_as_eager(fn, lambda: call(t()))


def test_a_class_whose_base_counts_subclasses_is_not_made_twice() -> None:
    seen: list[str] = []

    class Registry:
        def __init_subclass__(cls) -> None:
            seen.append(cls.__name__)

    def fn(x: Any) -> Any:
        class Entry(Registry):
            pass

        return Entry, x + 1

    with pytest.raises(stator.Unsupported, match="SB007"):
        stator.compile(fn, backend="eager", fullgraph=True)(t())


# ---------------------------------------------------------------------- classes made inside, over a break


class Outside:
    pass


def names_of_subclasses(cls: type) -> list[str]:
    return [each.__name__ for each in cls.__subclasses__()]


def dead_subclass(x: Any) -> Any:
    class Base:
        pass

    class Derived(Base):
        pass

    y = x + 1
    return names_of_subclasses(Base), y


def dead_subclass_of_an_outside_class(x: Any) -> Any:
    class Derived(Outside):
        pass

    stator.graph_break()
    return names_of_subclasses(Outside), x + 1


def methods_in_c_of_a_class(x: Any) -> Any:
    class Made(dict):  # type: ignore[type-arg]
        pass

    bound: list[Any] = [Made.fromkeys, Made.mro, Made.__new__, Made.__call__]
    stator.graph_break()
    fromkeys, mro, new, call_it = bound
    return type(fromkeys([1])) is Made, mro()[0] is Made, type(new(Made)) is Made, type(call_it()) is Made, x + 1


def methods_in_c_of_a_module(x: Any) -> Any:
    made = types.ModuleType("made")
    read, names = made.__getattribute__, made.__dir__
    stator.graph_break()
    made.later = 2  # type: ignore[attr-defined]
    return read("later"), "later" in names(), x + 1


def own_dict_attribute(x: Any) -> Any:
    class Module(types.ModuleType):
        __dict__ = property(lambda self: "no dict")  # type: ignore[assignment]

    made = Module("made")
    stator.graph_break()
    return made.__dict__, x + 1


@pytest.mark.parametrize("fn", [dead_subclass, dead_subclass_of_an_outside_class, methods_in_c_of_a_class,
                                methods_in_c_of_a_module, own_dict_attribute])
def test_classes_over_a_break(fn: Any) -> None:
    def collected() -> Any:
        if fn is dead_subclass_of_an_outside_class:
            gc.collect()  # classes of the call before
        return call(t())

    same_as_eager(fn, collected, collected, fullgraph=False)


# ---------------------------------------------------------------------- exceptions as values


def caught(x: Any) -> Any:
    try:
        try:
            raise KeyError("k")
        except KeyError as error:
            raise ValueError("v", 2) from error
    except ValueError as error:
        error.add_note("a note")
        return error, error.__cause__, x + 1
    return None


def group(x: Any) -> Any:
    return ExceptionGroup("g", [ValueError(1), KeyError("k")]), x + 1


class Custom(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def custom(x: Any) -> Any:
    try:
        raise Custom("t", 3)
    except Custom as error:
        return error, error.code, x + 1


def several_kinds(x: Any) -> Any:
    return [OSError(2, "no"), UnicodeDecodeError("utf8", b"a", 0, 1, "why"), StopIteration(4), SystemExit(3)], x + 1


@pytest.mark.parametrize("fn", [caught, group, custom, several_kinds])
def test_exceptions_as_values(fn: Any) -> None:
    same_as_eager(fn, lambda: call(t()))


def test_attributes_of_exceptions_survive() -> None:
    (os_error, unicode_error, stop, leave), _ = stator.compile(several_kinds, backend="eager", fullgraph=True)(t())
    assert (os_error.errno, os_error.strerror, str(os_error)) == (2, "no", "[Errno 2] no")
    assert (unicode_error.start, unicode_error.reason) == (0, "why")
    assert (stop.value, leave.code) == (4, 3)


@stator.disable
def uncaptured(x: Any) -> Any:
    return x + 1


class Backwards(collections.OrderedDict):  # type: ignore[type-arg]
    def values(self) -> Any:
        return super().values()


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict, Backwards])
def test_views_of_a_dict_live_over_a_break(cls: Any) -> None:
    def f(given: Any) -> Any:
        made = cls(given)
        values, keys, items = made.values(), made.keys(), made.items()
        x = uncaptured(given["a"])
        made["b"] = x * 2
        return sum(values) + x, list(keys), len(items), values, type(values)

    counter = GraphCounter("eager")
    compiled = stator.compile(f, backend=counter.backend)
    for scale in (1.0, 2.0):
        given = {"a": torch.ones(2) * scale}
        found, expected = compiled(given), f(given)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1:3] == expected[1:3] and found[4] is expected[4] and type(found[3]) is type(expected[3])
        torch.testing.assert_close(list(found[3]), list(expected[3]))


def test_sentinels_of_dataclasses_stay_themselves() -> None:
    def f(x: torch.Tensor) -> Any:
        held = [dataclasses.MISSING, dataclasses.KW_ONLY]
        kind = dataclasses._FIELD  # type: ignore[attr-defined]
        dataclasses._FIELD = None  # type: ignore[attr-defined]
        stator.graph_break()
        dataclasses._FIELD = kind  # type: ignore[attr-defined]
        return dataclasses.MISSING, held, held[0] is dataclasses.MISSING, x + 1

    kind = dataclasses._FIELD  # type: ignore[attr-defined]
    compiled = stator.compile(f, backend="eager", options={"strict": True})
    for _ in range(2):
        found = compiled(torch.ones(2))
        assert found[0] is dataclasses.MISSING and found[1][1] is dataclasses.KW_ONLY and found[2]
        assert dataclasses._FIELD is kind  # type: ignore[attr-defined]
