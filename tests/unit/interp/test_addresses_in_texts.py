"""Texts that show where an object lives: the user's object, also where another object shows it."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import io
import itertools
import json
import operator
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator import events


class Thing:
    pass


Row = collections.namedtuple("Row", "thing")


class Named:
    def __str__(self) -> str:
        return "named"

    def __format__(self, spec: str) -> str:
        return f"named {spec}"


TEXTS: dict[str, Callable[[Any, str], Any]] = {
    "repr": lambda thing, spec: repr(thing),
    "str": lambda thing, spec: str(thing),
    "ascii": lambda thing, spec: ascii(thing),
    "f-string": lambda thing, spec: f"{thing}",
    "percent": lambda thing, spec: "%s" % (thing,),
    "str.format": lambda thing, spec: "{} {!r:>80}".format(thing, thing),
    "format": lambda thing, spec: format(thing, spec),
    "a format of its own": lambda thing, spec: (format(Named(), spec), f"{Named():{spec}}", str(Named())),
    "list": lambda thing, spec: repr([thing]) + f"{[thing]}" + "%r" % ((thing,),),
    "dict": lambda thing, spec: str({1: thing}) + repr({1: thing}.items()) + repr(collections.OrderedDict(a=thing).values()) + repr({1: thing}.values()),
    "set": lambda thing, spec: repr({thing}) + repr(frozenset([thing])),
    "slice": lambda thing, spec: repr(slice(thing)),
    "deque": lambda thing, spec: repr(collections.deque([thing])),
    "namespace": lambda thing, spec: repr(types.SimpleNamespace(a=thing)),
    "partial": lambda thing, spec: repr(functools.partial(len, thing)),
    "exception": lambda thing, spec: repr(ValueError(thing)) + str(KeyError(thing)),
    "method": lambda thing, spec: repr(thing.__init__),
    "json": lambda thing, spec: json.dumps([1, {"a": thing}], default=repr) + json.dumps(thing, default=str),
    "joined": lambda thing, spec: ", ".join(map(repr, [thing])),
    "getters": lambda thing, spec: repr(operator.itemgetter(thing)) + f"{operator.methodcaller('a', k=[thing])}",
    "holders": lambda thing, spec: repr(staticmethod(thing)) + str(classmethod(thing)) + repr([itertools.repeat(thing)]),
    "named tuple": lambda thing, spec: repr(Row(thing)) + "%s" % Row(thing),
    "by hand": lambda thing, spec: thing.__repr__() + object.__str__(thing),
}


@pytest.mark.parametrize("name", TEXTS)
def test_of_the_users_object(name: str) -> None:
    def program(x: Any, thing: Any, spec: str) -> Any:
        try:
            return TEXTS[name](thing, spec)
        except TypeError as error:
            return str(error)

    first, second = Thing(), Thing()
    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for given in ((first, ""), (second, ""), (second, "s"), (first, "s"), (first, "")):
        assert compiled(torch.ones(2), *given) == program(torch.ones(2), *given)


def test_of_lists_and_their_methods() -> None:
    held = [Thing()]

    def program(x: Any) -> Any:
        return x + 1, repr(held), repr(held.append), f"{held}"

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for _ in range(2):
        assert compiled(torch.ones(2))[1:] == program(torch.ones(2))[1:]
        held[0] = Thing()


def test_of_a_function_that_is_replaced() -> None:
    table: dict[str, Any] = {"f": len}

    def program(x: Any) -> Any:
        return x + 1, repr(table), str(table["f"])

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for each in (program, test_of_lists_and_their_methods, print, program):
        table["f"] = each
        assert compiled(torch.ones(2))[1:] == program(torch.ones(2))[1:]


def test_of_an_object_made_inside_that_leaves() -> None:
    def program(x: Any) -> Any:
        made = Thing()
        return made, repr(made), repr(operator.itemgetter(made)), x + 1

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for _ in range(2):
        made, text, held, _ = compiled(torch.ones(2))
        assert text == repr(made)
        assert held == f"operator.itemgetter({text})"


def test_the_text_of_an_argument_is_captured_whole() -> None:
    def program(x: Any, thing: Any) -> Any:
        return x + 1, f"{thing}", format(thing, ""), repr(thing)

    with events.record() as log:
        stator.compile(program, backend="eager", fullgraph=True)(torch.ones(2), Thing())
    assert not [event for event in log if isinstance(event, events.GraphBreak)]


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "itemgetter": lambda n: operator.itemgetter(n), "methodcaller": lambda n: operator.methodcaller("a", [n], k=n),
    "staticmethod": lambda n: staticmethod(n), "classmethod": lambda n: classmethod(n), "alias": lambda n: dict[str, n],  # type: ignore[valid-type]
    "repeat": lambda n: itertools.repeat([n]), "nested": lambda n: [functools.partial(len, operator.itemgetter(n))],
    "exception": lambda n: ValueError(types.MappingProxyType({"a": n}), {"a": n}.values()), "method": lambda n: types.MethodType(len, n),
    "Literal": lambda n: copy.copy(typing.Literal[n]), "Annotated": lambda n: typing.Annotated[int, n],
}  # fmt: skip


def later(n: Any) -> Any:
    given: list[Any] = []
    holder = [operator.itemgetter(given), ValueError(given), itertools.repeat(given), functools.partial(len, given)]
    given.append(n)
    return holder


@pytest.mark.filterwarnings("ignore:stator")
@pytest.mark.parametrize("name", [*HOLDERS, "later"])
def test_of_numbers_and_texts_that_vary(name: str) -> None:
    """They are held by an object of C code, whose text shows them."""
    def program(x: Any, n: Any) -> Any:
        made = HOLDERS.get(name, later)(n)
        return x + 1, repr(made), f"{made}", "%r" % (made,), {hash(dict[str, n]) == hash(dict[str, n])}, print(made)  # type: ignore[valid-type]

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for given in (*range(4, 12), *"abcdefghijkl"):
        texts = []
        for subject in (program, compiled):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                texts.append((subject(torch.ones(2), given)[1:], printed.getvalue()))
        assert texts[0] == texts[1]
