"""Special methods and small functions of the library that the program itself calls by their names."""

from __future__ import annotations

import _abc
import abc
import functools
import importlib.metadata
import importlib.util
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from same_as_eager import same_as_eager
from tests.breaks.capture import compare

PROGRAMS: dict[str, Callable[..., Any]] = {}
T = typing.TypeVar("T")


def program(fn: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[fn.__name__] = fn
    return fn


class Plain:
    kind = "plain"

    def __init__(self, n: int) -> None:
        self.n = n


def counting(n: int) -> Any:
    got = yield n
    yield got, n + 1
    return n + 2


async def awaited(n: int) -> int:
    return n * 2


@program
def generators(x: Any, n: int) -> Any:
    made = counting(n)
    kind = types.GeneratorType
    same = kind.__iter__(made) is made and made.__iter__() is made
    found = [kind.__next__(made), made.__next__()]
    try:
        kind.__next__(made)
    except StopIteration as end:
        found.append(end.value)
    return x + n, same, found


@program
def coroutines(x: Any, n: int) -> Any:
    made = awaited(n)
    kind = type(made)
    inner = kind.__await__(made)
    try:
        inner.send(None)
    except StopIteration as end:
        return x + end.value


@program
def handled_exceptions(x: Any, n: int) -> Any:
    before = sys.exception()
    try:
        [][n]
    except IndexError as error:
        inside = sys.exception() is error
        try:
            {}[n]
        except KeyError:
            deeper = str(sys.exception())
        again = sys.exception() is error
    return x + n, before, inside, deeper, again, sys.exception()


@program
def attributes_of_classes(x: Any, n: int) -> Any:
    class Local:
        kind = n
        held = Plain(n)

    Local.kind += 1
    found = [type.__getattribute__(Local, "kind"), type.__getattribute__(Plain, "kind"), type.__getattribute__(Local, "held").n,
             type.__getattribute__(Plain, "__name__")]
    try:
        type.__getattribute__(Plain, "missing")
    except AttributeError as error:
        found.append(str(error))
    type.__delattr__(Local, "kind")
    return x + n, found, hasattr(Local, "kind")


@program
def attributes_of_objects(x: Any, n: int) -> Any:
    made = Plain(n)
    object.__delattr__(made, "n")
    shown = hasattr(made, "n"), vars(made)
    try:
        object.__delattr__(made, "n")
    except AttributeError as error:
        return x + n, shown, str(error)


@program
def tensors(x: Any, n: int) -> Any:
    y = x + n
    found = {x: 1, y: 2}
    return y, torch.is_tensor(y), torch.is_tensor(n), torch.Tensor.__hash__(y) == id(y), hash(x) == id(x), found[y], found[x], \
        y[:1]._is_view(), (y * 2)._is_view()


@program
def parts_of_tensors(x: Any, n: int) -> Any:
    y = x * 2
    torch.Tensor.__setitem__(y, 0, n)
    torch.Tensor.__setitem__(y, slice(1, None), x[:1])
    return y, torch.Tensor.__getitem__(y, 1), torch.Tensor.__getitem__(x, (Ellipsis, None)), torch.Tensor.__getitem__(x, x > n)


@program
def abstract_classes(x: Any, n: int) -> Any:
    same = _abc.get_cache_token() == abc.get_cache_token()
    return x + n, same, type(abc.get_cache_token())


@program
def type_variables(x: Any, n: int) -> Any:
    made, named = typing.TypeVar("made"), typing.NewType("named", int)
    return x + named(n), made.__name__, made.__module__, named.__module__, named.__name__


@program
def installed_packages(x: Any, n: int) -> Any:
    return x + n, "torch" in importlib.metadata.packages_distributions(), importlib.util.find_spec("json", None) is None


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name: str) -> None:
    same_as_eager(PROGRAMS[name], (torch.ones(2), 1), (torch.ones(2), 3), (torch.ones(2), 1))


class Named(str):
    """No name that is known while tracing: its own methods would be asked."""

    def rpartition(self, sep: str) -> Any:
        raise AssertionError(sep)


def packages_by_other_names(x: Any, name: Any) -> Any:
    found = []
    for ask in (importlib.util.find_spec, importlib.metadata.version):
        try:
            found.append(ask(name) is not None)
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return x + 1, found


@pytest.mark.parametrize("name", [Named("torch"), 3, b"torch"], ids=lambda name: type(name).__name__)
def test_packages_by_names_that_are_none(name: Any) -> None:
    seen = compare(packages_by_other_names, [(torch.ones(2), name), (torch.ones(2), "torch"), (torch.ones(2), name)])
    assert set(seen.breaks) == {"SB001"}


def made_by_the_program(x: Any, n: int) -> Any:
    namespace: dict[str, Any] = {}
    exec(compile(f"def made(x): return x * {n}", "made", "exec"), namespace)
    return namespace["made"](x) + 1, eval(compile("n + 1", "made", "eval"))


def test_code_that_is_compiled_inside() -> None:
    seen = compare(made_by_the_program, [(torch.ones(2), 2), (torch.ones(2), 3)])
    assert set(seen.breaks) == {"SB001"}


def views_from_outside(x: Any) -> Any:
    return x + 1, x._is_view()


def test_whether_an_argument_is_a_view() -> None:
    compiled = stator.compile(views_from_outside, backend="eager")
    base = torch.ones(4)
    for x in (base, base[:2], base[1:3].clone(), base[2:]):
        assert compiled(x)[1] == views_from_outside(x)[1]


@functools.lru_cache
def doubled(n: int) -> int:
    return n * 2


def caches_called_by_c(x: Any, numbers: list[int]) -> Any:
    return x + 1, list(map(doubled, numbers)), sorted(numbers, key=doubled), max(numbers, key=doubled), doubled.cache_info()


def test_a_cache_that_c_code_calls_counts_its_calls() -> None:
    told = []
    for run in (caches_called_by_c, stator.compile(caches_called_by_c, backend="eager", options={"strict": True})):
        doubled.cache_clear()
        told.append([run(torch.ones(2), numbers)[1:] for numbers in ([3, 1, 2], [4, 1, 2], [3, 1, 2])])
    assert told[0] == told[1]


class Raising:
    def __init__(self, error: AttributeError) -> None:
        self.error = error

    @property
    def value(self) -> Any:
        raise self.error

    def __getattr__(self, name: str) -> Any:
        raise self.error


def suppressed(x: Any, error: AttributeError) -> Any:
    held = Raising(error)
    return x + 1, getattr(held, "value", 3), hasattr(held, "other"), error.name, error.obj, error.args


def test_nothing_is_written_on_an_error_of_the_users_that_is_suppressed() -> None:
    compiled = stator.compile(suppressed, backend="eager", options={"strict": True})
    for _ in range(2):
        assert compiled(torch.ones(2), AttributeError("gone"))[1:] == suppressed(torch.ones(2), AttributeError("gone"))[1:]
