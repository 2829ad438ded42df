"""Arguments are bound as CPython binds them, and CPython words the errors."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch  # noqa: F401 - torch's libraries must be loaded before the core

from stator._core import CompiledFunction


def nothing():  # noqa: ANN201 - a bare signature
    return locals()


def one(a):
    return locals()


def defaults(a, b=2, c=3):
    return locals()


def positional_only(a, b=2, /, c=3):
    return locals()


def keyword_only(a, *, b, c=3):
    return locals()


def star(a, *rest):
    return locals()


def star_star(a, **extra):
    return locals()


def everything(a, b=2, /, c=3, *rest, d, e=5, **extra):
    return locals()


def posonly_and_extra(a, /, **extra):
    return locals()


def captured(a, b=2, *rest, c=3):
    def inner():
        return a, rest

    inner()
    return locals()


def many(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16=16, *, k=1, **extra):
    return locals()


FUNCTIONS: list[Callable[..., Any]] = [
    nothing, one, defaults, positional_only, keyword_only, star, star_star, everything, posonly_and_extra, captured, many,
]  # fmt: skip


def parameter_names(fn: Any) -> list[str]:
    code = fn.__code__
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return list(code.co_varnames[:count])


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return ("value", call())
    except TypeError as error:
        return ("TypeError", str(error))


def bound_by_cpython(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kind, value = outcome(lambda: fn(*args, **kwargs))
    return (kind, tuple(value[name] for name in parameter_names(fn))) if kind == "value" else (kind, value)


def bound_by_entry(fn: Any, prefix: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    entry = CompiledFunction(fn, lambda self, bound, args, kwargs: bound, prefix)
    return outcome(lambda: entry(*args, **kwargs))


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_calls_bind_as_cpython_binds_them(fn: Any) -> None:
    names = ["a", "b", "c", "d", "e", "k", "z", "a3"]
    for count, keyword_count in itertools.product((0, 1, 2, 3, 5, 16, 17, 18), (0, 1, 2, 3)):
        args = tuple(range(100, 100 + count))
        for chosen in itertools.combinations(names, keyword_count):
            kwargs = {name: name * 2 for name in chosen}
            expected = bound_by_cpython(fn, args, kwargs)
            assert bound_by_entry(fn, (), args, kwargs) == expected
            split = random.Random(count).randint(0, count)
            assert bound_by_entry(fn, args[:split], args[split:], kwargs) == expected


def test_keywords_are_matched_by_value_not_by_identity() -> None:
    name = "".join(["b", ""])
    assert bound_by_entry(defaults, (), (1,), {name: 9}) == ("value", (1, 9, 3))


def test_keyword_order_is_kept() -> None:
    kind, bound = bound_by_entry(star_star, (), (1,), {"z": 1, "y": 2, "x": 3})
    assert list(bound[1]) == ["z", "y", "x"]


def test_defaults_are_read_live() -> None:
    def changing(a, b=2, *, c=3):
        return (a, b, c)

    entry = CompiledFunction(changing, lambda self, bound, args, kwargs: bound)
    assert entry(1) == (1, 2, 3)
    changing.__defaults__ = (20,)
    changing.__kwdefaults__ = {"c": 30}
    assert entry(1) == (1, 20, 30)
    changing.__kwdefaults__ = None
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'c'"):
        entry(1)


def test_code_is_read_live() -> None:
    def swapped(a, b):
        return (a, b)

    entry = CompiledFunction(swapped, lambda self, bound, args, kwargs: bound)
    assert entry(1, 2) == (1, 2)
    swapped.__code__ = one.__code__
    assert entry(1) == (1,)


def test_a_str_subclass_as_keyword_is_left_to_cpython() -> None:
    class Name(str):
        pass

    entry = CompiledFunction(one, lambda self, bound, args, kwargs: "bound here")
    assert entry(**{Name("a"): 1}) == {"a": 1}


def test_the_miss_gets_what_an_eager_call_needs() -> None:
    seen: list[Any] = []

    def miss(self: Any, bound: Any, args: Any, kwargs: Any) -> Any:
        seen.append((self, bound, args, kwargs))
        return self.fn(*args, **(kwargs or {}))

    entry = CompiledFunction(everything, miss, (1,))
    assert entry(2, 3, 4, d=5, z=6) == everything(1, 2, 3, 4, d=5, z=6)
    assert seen[0] == (entry, (1, 2, 3, 5, 5, (4,), {"z": 6}), (1, 2, 3, 4), {"d": 5, "z": 6})
    entry(2, d=1)
    assert seen[1][2:] == ((1, 2), {"d": 1})
    plain = CompiledFunction(one, miss)
    plain(7)
    assert seen[2][1:] == ((7,), (7,), None)
