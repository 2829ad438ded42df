"""Special methods and small functions of the library that the program itself calls by their names."""

from __future__ import annotations

import _abc
import abc
import datetime
import decimal
import functools
import importlib.metadata
import importlib.util
import sys
import types
import typing
import warnings
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
import torch
from torch.nn import functional

import stator
from stator import events
from tests.breaks.capture import compare
from tests.comparison import Programs, same_as_eager

program = PROGRAMS = Programs()
T = typing.TypeVar("T")


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
    return x + named(n), made.__name__, named.__module__, named.__name__


@program
def installed_packages(x: Any, n: int) -> Any:
    return x + n, "torch" in importlib.metadata.packages_distributions(), importlib.util.find_spec("json", None) is None


def test_the_module_of_a_type_variable() -> None:
    def module(x: Any) -> Any:
        made = typing.TypeVar("made")
        return x + 1, made.__module__, T.__module__

    # From 3.12 on it is in a dict that Python does not show: a break.
    same_as_eager(module, (torch.ones(2),), fullgraph=sys.version_info < (3, 12))


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
    assert not seen.breaks


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


def handling(n: int) -> Any:
    """Yields inside a handler, again and again."""
    try:
        raise ValueError(n)
    except ValueError:
        yield 1
        try:
            raise KeyError(2)
        except KeyError as error:
            yield error.__context__
        yield sys.exception()
        try:
            raise
        except ValueError as error:
            yield error


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_generator_from_outside_that_is_handling_an_exception(steps: int) -> None:
    compiled = stator.compile(lambda x, made: (x + 1, [repr(each) for each in made]), backend="eager", fullgraph=True,
                              options={"strict": True})
    for n in (3, 4):
        left, right = handling(n), handling(n)
        for _ in range(steps):
            next(left), next(right)
        assert compiled(torch.ones(2), left)[1] == [repr(each) for each in right]


class Pair(tuple[Any, ...]):
    made = 0

    def __new__(cls, *parts: Any) -> Pair:
        cls.made += 1
        return super().__new__(cls, *parts)


class Point(typing.NamedTuple):
    x: int
    y: int


class Noted(Point):
    note: Any


def tuples_of_sizes(x: torch.Tensor) -> Any:
    n = x.shape[0]
    pair, point = Pair((n, 1)), Noted(n, 2)
    pair.note, point.note = "pair", [1]  # type: ignore[attr-defined]
    return x + 1, hash(pair) == hash((n, 1)), {pair: pair.note}, point in {point}, list({point: 1})[0].note, f"{point}", \
        max([point, Noted(1, 1)]).note, Pair.made, "%s" % (point,)  # type: ignore[attr-defined]


@pytest.mark.parametrize("dynamic", [True, None])
def test_tuples_of_the_programs_classes_that_hold_sizes(dynamic: Any) -> None:
    compiled = stator.compile(tuples_of_sizes, backend="eager", dynamic=dynamic, options={"strict": True})
    for rows in (2, 3, 4, 5):
        told = []
        for run in (compiled, tuples_of_sizes):
            Pair.made = 0
            try:
                told.append(str(run(torch.ones(rows, 3))))
            except AttributeError as error:
                told.append(str(error))
        assert told[0] == told[1]


def held_over_a_branch(x: torch.Tensor, moment: Any) -> Any:
    box = [moment]
    return torch.cond(x.sum() > 0, lambda t: t + len(box), lambda t: t * 2, (x,)), moment + (moment - moment)


@pytest.mark.parametrize("moment", [datetime.timedelta(2), decimal.Decimal(2)], ids=str)
def test_constants_written_in_c_are_held_while_functions_are_captured(moment: Any) -> None:
    compiled = stator.compile(held_over_a_branch, backend="eager", fullgraph=True, options={"strict": True})
    for x in (torch.ones(2), -torch.ones(2)):
        assert compiled(x, moment)[0].tolist() == (x + 1 if x.sum() > 0 else x * 2).tolist()


def test_operators_on_objects_of_which_nothing_is_known() -> None:
    """Elements of XML are written in C, and change."""
    element = ElementTree.Element("a")

    def program(x: torch.Tensor) -> Any:
        return x + (2 if element else 1), bool(element), element == element, element != 3

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    with warnings.catch_warnings(), events.record() as log:
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert str(compiled(torch.zeros(1))) == str(program(torch.zeros(1)))
            ElementTree.SubElement(element, "b")
    assert {event.code for event in log if isinstance(event, events.GraphBreak)} == {"SB005"}


def far(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    DISTANCES.append(1)
    return (a - b).abs().sum(-1)


DISTANCES: list[int] = []


def test_a_function_of_the_programs_that_torch_calls_is_interpreted() -> None:
    def program(x: torch.Tensor) -> Any:
        return functional.triplet_margin_with_distance_loss(x, x + 1, x * 2, distance_function=far), len(DISTANCES)

    told = []
    for run in (program, stator.compile(program, backend="eager", options={"strict": True})):
        DISTANCES.clear()
        told.append([str(run(torch.arange(3.0))) for _ in range(3)])
    assert told[0] == told[1]


def test_a_function_of_torch_written_in_python_is_one_node() -> None:
    def program(x: torch.Tensor) -> Any:
        return functional.gelu(x), functional.softmax(x, -1), torch.einsum("i,i->", x, x), torch.split(x, 1)

    with events.record() as log:
        stator.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
    (made,) = [event for event in log if isinstance(event, events.CaptureFinished)]
    found = {node.target for node in made.graph.graph.nodes if node.op == "call_function"}
    assert {functional.softmax, torch.einsum} <= found | {torch.functional.einsum}
    assert functional.softmax in found
