"""Values of which a trace knows the type alone: scalars of numpy that the graph holds, texts made of its numbers."""

from __future__ import annotations

import copy
import math
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import stator
from tests.comparison import same_as_eager

TEXTS: dict[str, Callable[[Any], Any]] = {
    "match": lambda text: re.match("3", text) is None,
    "search": lambda text: re.search("(?P<n>[0-9.]+)", text)["n"],  # type: ignore[index]
    "split": lambda text: (re.split(" ", text), re.findall("t", text), re.sub("t", "T", text), re.escape(text)),
    "by keyword": lambda text: re.fullmatch(pattern=".*", string=text) is not None,
    "its method": lambda text: str.__getattribute__(text, "upper")(),
    "copied": lambda text: (copy.copy(text), copy.deepcopy(text), text.__reduce_ex__(2)[1]),
    "looked into": lambda text: (text.upper(), len(text), text[0], text + "b", "3" in text, text == "a", list(text)[:2]),
}
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "rounded": lambda n: (round(n), type(round(n))),
    "index": lambda n: (operator.index(n), [1, 2, 3][n], "abc"[n], "a" * n, range(n)),
    "number": lambda n: (float(n), complex(n), int(n), bool(n), int(n).to_bytes(2, "big"), math.sqrt(n)),
    "kept": lambda n: ([n], {"k": n}, (n,), max([n, n]), sorted([n, n]), [1, 2].count(n), {n: 1}),
    "method": lambda n: (n.item(), n.astype("float32"), n.__add__(1), numpy.int64.__add__(n, 1), n.conjugate(), hash(n)),
    "text": lambda n: (str(n), f"{n}", format(n, "d"), repr(n), "%d" % n),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    def program(x: Any) -> Any:
        y = x + 1
        return y, TEXTS[name](f"{x.sum().item()} tokens")

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for step in range(3):
        given = torch.arange(3.0) + step
        assert str(compiled(given)) == str(program(given))


@pytest.mark.parametrize("name", NUMBERS)
def test_scalars(name: str) -> None:
    def program(x: Any, n: Any) -> Any:
        y = x * n
        return y, NUMBERS[name](n)

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for number in (1, 2, 0, 2):
        given = torch.arange(3.0), numpy.int64(number)
        assert str(compiled(*given)) == str(program(*given))


ERRORS: dict[str, Callable[[int], BaseException]] = {
    "file": lambda n: FileNotFoundError(2, "No such file", f"name {n}"),
    "two files": lambda n: OSError(18, "Invalid link", "one", None, f"name {n}"),
    "syntax": lambda n: SyntaxError("wrong", ("file", n, 1, "text")),
    "decoding": lambda n: UnicodeDecodeError("utf8", b"abcd", 0, 1 + n, "why"),
    "import": lambda n: ImportError("none", name=f"module {n}"),
    "key": lambda n: KeyError(n),
}
CHANGES: dict[str, tuple[str, Any]] = {
    "file": ("filename", "other"), "two files": ("strerror", "other"), "syntax": ("lineno", 99), "decoding": ("reason", "other"),
    "import": ("msg", "other"), "key": ("args", (99,)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_texts_of_errors_from_outside(name: str) -> None:
    """Some classes show more than the arguments, which may change by itself."""
    def program(x: Any, error: BaseException) -> Any:
        return x + 1, str(error), f"{error}"

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for step in (0, 1, 2, 1):
        error = ERRORS[name](step)
        assert compiled(torch.ones(1), error)[1:] == program(torch.ones(1), error)[1:]
        setattr(error, *CHANGES[name])
        assert compiled(torch.ones(1), error)[1:] == program(torch.ones(1), error)[1:]


def counting(attributes: int) -> Any:
    def function() -> None:
        pass

    vars(function).update({f"a{number}": 1 for number in range(attributes)}, calls=attributes)
    return function


def assigned(x: Any, function: Any) -> Any:
    function.calls += 1
    return sorted(vars(function)), x + 1


def taken_first(x: Any, function: Any) -> Any:
    own = vars(function)
    return function.calls, own, x + 1


@pytest.mark.parametrize("program", [assigned, taken_first])
@pytest.mark.filterwarnings("ignore:stator. recompile limit")
def test_attributes_of_functions_whose_dict_changes_from_call_to_call(program: Any) -> None:
    same_as_eager(program, *(lambda size=size: ((torch.ones(1), counting(size)), {}) for size in range(14)),
                  fullgraph=False, strict=True)
