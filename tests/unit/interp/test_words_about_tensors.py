"""Errors about tensors, in the words of C code, torch and the interpreter: they name the class that the program has."""

from __future__ import annotations

import collections
import copy
import math
import operator
from typing import Any

import pytest
import torch

import stator
from stator import events

OPERATORS = ("+", "-", "*", "@", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "<")
EXPRESSIONS = [
    *(f'{left} {symbol} {right}' for symbol in OPERATORS for left, right in (("p", '"s"'), ("[]", "p"))),
    '"s" @ (p + 1)', '"s" + p', 'None * p', 'p + []', '{} | p', 'b"a" + p', 'p["x"]', 'p[None:"a"]', "p[p]", "p[1.5]", "p.x",
    "p.T.x", "p.data.x", "p()", "[1, 2][p]", "[][0:p]", '"%d" % p', 'f"{p:d}"', '"a".join([p])', "str.upper(p)",
    "list.append(p, 1)", 'max([p, "s"])', 'sum([p, "s"])', 'sum("ab", p)', "isinstance(1, p)", "math.sqrt(p)",
    'round(p, "s")', 'divmod("s", p)', "memoryview(p)", "next(p)", "map(p, [1]).__next__()", "hash([p])", "{**p}",
    "(lambda **k: k)(**p)", 'p in "abc"', 'getattr(p, "zz")', "getattr(p, 1)", "setattr(p, 1, 2)", 'delattr(p, "zz")',
    "operator.index(p)", "ord(p)", "chr(p)", "collections.deque(maxlen=p)", "copy.copy(p).zz", 'format(p, "d")',
    'p.view("a")', 'torch.add(p, "s")', "torch.cat(p)", "torch.stack([p, 1])", "torch.zeros(p)", "p.add(1, 2, 3)",
    'p.sum("a")', "super(int, p)", "p.__getitem__()", 'p.__add__("s")', "p.item()", 'str(p, "a")', '"a".split(p)',
    '"a".replace(p, "b")', "dict([p])", "object.__new__(p)", 'p.__setattr__("a")', "property().__get__(p, 1, 2)",
    'torch.Tensor.add("s", p)', "operator.imatmul(p, [])", "int(p, 2)", 'int("1", p)',
]  # fmt: skip
NAMES = {"collections": collections, "copy": copy, "math": math, "operator": operator, "torch": torch}


class Weight(torch.nn.Parameter):
    pass


KINDS = {
    "Tensor": lambda: torch.ones(2, 3), "Parameter": lambda: torch.nn.Parameter(torch.ones(2, 3)),
    "Weight": lambda: Weight(torch.ones(2, 3)),
}


def told(call: Any, p: Any) -> Any:
    try:
        return repr(call(p))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_words(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    for expression in EXPRESSIONS:
        call = eval(f"lambda p: {expression}", dict(NAMES))  # noqa: S307  written above

        def program(p: Any, call: Any = call) -> Any:
            return told(call, p), p + 1

        compiled = stator.compile(program, backend="eager")
        for _ in range(2):
            assert compiled(KINDS[kind]())[0] == program(KINDS[kind]())[0], expression


def test_in_place_words() -> None:
    def program(p: torch.Tensor) -> Any:
        said = []
        for other in ("s", [], None):
            try:
                p @= other
            except TypeError as error:
                said.append(str(error))
            try:
                p += other
            except TypeError as error:
                said.append(str(error))
        return said

    for kind in KINDS.values():
        assert stator.compile(program, backend="eager")(kind()) == program(kind())


def test_an_error_that_nobody_handles_breaks_nothing() -> None:
    def program(p: torch.Tensor) -> Any:
        return "s" @ (p + 1)

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    with events.record() as log, pytest.raises(TypeError, match="'str' and 'Tensor'"):
        compiled(torch.nn.Parameter(torch.ones(2)))
    assert not [event for event in log if isinstance(event, events.GraphBreak)]
