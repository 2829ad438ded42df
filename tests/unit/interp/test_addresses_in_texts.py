"""Texts that show where an object lives: the user's object, also where another object shows it."""

from __future__ import annotations

import collections
import functools
import json
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator import events


class Thing:
    pass


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
        return made, repr(made), x + 1

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for _ in range(2):
        made, text, _ = compiled(torch.ones(2))
        assert text == repr(made)


def test_the_text_of_an_argument_is_captured_whole() -> None:
    def program(x: Any, thing: Any) -> Any:
        return x + 1, f"{thing}", format(thing, ""), repr(thing)

    with events.record() as log:
        stator.compile(program, backend="eager", fullgraph=True)(torch.ones(2), Thing())
    assert not [event for event in log if isinstance(event, events.GraphBreak)]
