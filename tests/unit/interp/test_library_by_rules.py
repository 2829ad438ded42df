"""Questions to the library that the interpreter answers itself: packages, limits, contexts, hashes, classes, signatures."""

from __future__ import annotations

import abc
import contextvars
import copy
import copyreg
import decimal
import functools
import importlib.metadata
import importlib.util
import inspect
import numbers
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from tests.comparison import Programs, same_as_eager

program = PROGRAMS = Programs()
T = typing.TypeVar("T")


class Plain:
    def __init__(self, n: int) -> None:
        self.n = n


class Strange(type):
    def __instancecheck__(cls, obj: Any) -> bool:
        return True

    def __repr__(cls) -> str:
        return "strange"


class Odd(metaclass=Strange):
    pass


class Posing:
    @property
    def __class__(self) -> Any:
        return Plain


def described(a: int, b: str = "b", /, c: Any = None, *rest: int, d: float = 0.5, e: Any, **more: Any) -> list[int]:
    raise NotImplementedError


@functools.wraps(described)
def around(*args: Any, **kwargs: Any) -> Any:
    return described(*args, **kwargs)


@program
def packages(x: Any, n: int) -> Any:
    found = [importlib.util.find_spec(name) is not None for name in ("json", "no_such_module")]
    return x + n, found, importlib.metadata.version("torch")


@program
def modules(x: Any, n: int) -> Any:
    made = types.ModuleType("made", "its text")
    made.n = n
    missing = getattr(made, "other", None)
    return x + made.n, made.__name__, made.__doc__, missing, types.ModuleType.__getattribute__(made, "n")


@program
def classes_by_hand(x: Any, n: int) -> Any:
    return x, type.__or__(int, str), type.__ror__(int, str), type.__repr__(Plain), type.__repr__(Odd), repr(Odd), \
        type.__instancecheck__(Odd, 3), isinstance(3, Odd), type.__subclasscheck__(int, bool), type.__instancecheck__(int, n), \
        type.mro(Plain), issubclass(bool, int), type.__instancecheck__(torch.Tensor, x), type.__instancecheck__(int, x.shape[0]), \
        type.__instancecheck__(Plain, Posing()), type.__instancecheck__(str, Posing()), \
        abc.ABCMeta.__instancecheck__(numbers.Integral, n), abc.ABCMeta.__instancecheck__(numbers.Integral, n + 0.5), \
        abc.ABCMeta.__subclasscheck__(numbers.Real, float), isinstance(n, numbers.Integral)


@program
def classes_made_inside(x: Any, n: int) -> Any:
    class Held(typing.Generic[T]):
        def __init__(self, value: T) -> None:
            self.value = value

    class Below(Held[int]):
        pass

    return x + Below(n).value, Held[str]("a").value, len(Below.__orig_bases__), len(Held.__parameters__), Below.__mro__[1] is Held


@program
def hashes(x: Any, n: int) -> Any:
    a, b = Plain(n), Plain(n)
    table = {a: 1, (a, b): 2, frozenset([a]): 3}
    return x + n, hash(a) == hash(a), object.__hash__(a) == hash(a), hash((a, b)) == hash((a, b)), table[a], table[(a, b)], \
        table[frozenset([a])], hash((n, "a")), tuple.__hash__((n, 2)), hash(a) == hash(b), \
        frozenset.__hash__(frozenset([n])), hash(Plain) == hash(Plain)


@program
def signatures(x: Any, n: int) -> Any:
    def local(p: int = n, *, q: str = "q") -> float:
        raise NotImplementedError

    asked = [str(inspect.signature(each)) for each in (described, around, local, Plain(n).__init__)]
    kinds = [(p.name, p.kind, p.default is p.empty, p.annotation) for p in inspect.signature(described).parameters.values()]
    return x, asked, kinds, inspect.signature(local).return_annotation


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name: str) -> None:
    same_as_eager(PROGRAMS[name], (torch.ones(2), 1), (torch.ones(2), 3), (torch.ones(2), 1))


def compiled(fn: Callable[..., Any]) -> Any:
    return stator.compile(fn, backend="eager", fullgraph=True, options={"strict": True})


def test_limits_of_the_process_are_facts() -> None:
    fn = compiled(lambda x: x + sys.getrecursionlimit() + sys.get_int_max_str_digits())
    before = sys.getrecursionlimit(), sys.get_int_max_str_digits()
    try:
        for limit, digits in ((before[0], before[1]), (before[0] + 7, before[1]), (before[0], 5000), before):
            sys.setrecursionlimit(limit)
            sys.set_int_max_str_digits(digits)
            assert fn(torch.zeros(1)).item() == limit + digits
    finally:
        sys.setrecursionlimit(before[0])
        sys.set_int_max_str_digits(before[1])


@pytest.mark.parametrize("default", [(), ({"default": 1.0},)])
def test_a_context_variable_is_a_fact(default: tuple[dict[str, float], ...]) -> None:
    variable: contextvars.ContextVar[float] = contextvars.ContextVar("variable", **(default[0] if default else {}))

    def program(x: Any) -> Any:
        try:
            found = variable.get()
        except LookupError:
            found = -1.0
        return x + found, variable.get(9.0)

    def one_call(run: Any, value: float | None) -> Any:
        if value is not None:
            variable.set(value)
        return [each.tolist() if isinstance(each, torch.Tensor) else each for each in run(torch.zeros(2))]

    fn = compiled(program)
    for value in (None, 2.0, 3.0, 2.0, None, 4.0):
        context = contextvars.copy_context()
        assert context.run(one_call, fn, value) == context.run(one_call, program, value)


def test_a_context_variable_that_is_set_inside() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=1)

    def program(x: Any, n: int) -> Any:
        token = variable.set(n)
        inside = variable.get()
        if n == 2:
            variable.reset(token)
        return x + inside, variable.get()

    fn = compiled(program)
    for n in (2, 3, 2, 5):
        outcomes = []
        for run in (program, fn):
            context = contextvars.copy_context()
            value, last = context.run(run, torch.zeros(1), n)
            outcomes.append((value.item(), last, context.get(variable)))
        assert outcomes[0] == outcomes[1]


def test_flags_of_a_decimal_context_are_raised_once_the_call_is_made() -> None:
    """By the call, not by the trace, and only those that it meets."""
    def program(x: Any, a: decimal.Decimal) -> Any:
        return x, a / decimal.Decimal(7), a + 1

    fn = compiled(program)
    for number in (decimal.Decimal(1), decimal.Decimal(14), decimal.Decimal(1)):
        outcomes = []
        for run in (program, fn):
            with decimal.localcontext() as context:
                context.clear_flags()
                outcomes.append((run(torch.ones(1), number)[1:], {flag for flag, up in context.flags.items() if up}))
        assert outcomes[0] == outcomes[1]


def test_a_capture_that_is_given_up_leaves_no_flags_behind() -> None:
    def program(x: Any) -> Any:
        decimal.Decimal(1) / decimal.Decimal(7)
        stator.graph_break()
        return x

    with decimal.localcontext() as context:
        context.clear_flags()
        with pytest.raises(stator.Unsupported):
            compiled(program)(torch.ones(1))
        assert not any(context.flags.values())


def test_annotations_and_defaults_of_a_function_are_facts() -> None:
    def asked(a: int, b: int = 1) -> int:
        raise NotImplementedError

    def program(x: Any) -> Any:
        found = inspect.signature(asked)
        return x, str(found), found.parameters["b"].default, found.parameters["a"].annotation

    fn = compiled(program)
    changes: list[Callable[[], Any]] = [
        lambda: None, lambda: setattr(asked, "__defaults__", (5,)), lambda: asked.__annotations__.update(a=str),
        lambda: asked.__annotations__.pop("return"), lambda: setattr(asked, "__signature__", inspect.Signature()),
        lambda: delattr(asked, "__signature__"), lambda: setattr(asked, "__wrapped__", described)]
    for change in changes:
        change()
        try:
            expected = program(torch.ones(1))[1:]
        except KeyError:
            with pytest.raises(KeyError):
                fn(torch.ones(1))
            continue
        assert fn(torch.ones(1))[1:] == expected


class Slotted:
    __slots__ = ("a", "__private")

    def __init__(self, a: int) -> None:
        self.a, self.__private = a, a + 1

    def both(self) -> tuple[int, int]:
        return self.a, self.__private


@program
def copies_of_slots(x: Any, n: int) -> Any:
    made = copy.copy(Slotted(n))
    return x, made.both(), copy.deepcopy(made).both(), tuple(copyreg._slotnames(Slotted)), tuple(Slotted.__slotnames__)


def test_the_names_of_slots_are_kept_on_the_class_as_copyreg_does() -> None:
    class Local(Slotted):
        __slots__ = ("b",)

    assert "__slotnames__" not in vars(Local)
    fn = compiled(lambda x: (x, copy.copy(Local(3)).a))
    for _ in range(2):
        assert fn(torch.ones(1))[1] == 3
        assert vars(Local)["__slotnames__"] == ["b", "a", "_Slotted__private"]
        del Local.__slotnames__


@program
def exceptions_of_the_frame(x: Any, n: int) -> Any:
    seen = [sys.exception(), sys.exc_info()[0]]
    try:
        raise ValueError(n)
    except ValueError:
        seen += [type(sys.exception()), sys.exception().args]
    return x, seen, list(iter(lambda: seen.pop() if seen else None, None))[:1], list(iter(()))
