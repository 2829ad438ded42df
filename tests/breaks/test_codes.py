"""Every break code of the registry is raised by a program here, and nothing breaks without a registered code."""

from __future__ import annotations

import ast
import io
import itertools
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.parsers import expat

import pytest
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException

import stator
from stator import breaks, events
from tools import breaks_docs

X = torch.tensor([1.0, -2.0, 3.0])
PACKAGE = Path(stator.__file__).parent
PROGRAMS: dict[str, Callable[[], Any]] = {}


def program(code: str) -> Any:
    """A function without arguments that makes a call which breaks with `code`."""
    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS[code] = function
        return function

    return register


def run(function: Any, *args: Any, **settings: Any) -> Any:
    return stator.compile(function, backend="eager", **settings)(*args)


@torch.library.custom_op("stator_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


@positive.register_fake
def _(x):
    raise DynamicOutputShapeException(torch.ops.stator_tests.positive.default)


class Finalized:
    def __del__(self) -> None:
        pass


@stator.disable
def disabled(x):
    return x


def count(x, n):
    return x if n == 0 else count(x + 1, n - 1)


@program("SB001")
def _() -> None:
    run(lambda x: (expat.ErrorString(1), x + 1)[1], X)


@program("SB002")
def _() -> None:
    run(lambda x: x + 1 if x.sum() > 0 else x - 1, X)


@program("SB003")
def _() -> None:
    run(lambda x: ({x.sum().item(): 1}, x + 1)[1], X)


@program("SB004")
def _() -> None:
    run(lambda x: positive(x) + 1, X)


@program("SB005")
def _() -> None:
    run(lambda x: x.untyped_storage().nbytes() + x, X)


@program("SB006")
def _() -> None:
    stream = io.BytesIO()
    run(lambda x: (stream.truncate(0), x + 1)[1], X)


@program("SB007")
def _() -> None:
    run(lambda x: (x + 1, iter(memoryview(b"ab"))), X)


@program("SB008")
def _() -> None:
    run(lambda x: x + sys._getframe().f_lineno * 0, X)


@program("SB009")
def _() -> None:
    run(lambda x: (stator.graph_break(), x + 1)[1], X)


@program("SB010")
def _() -> None:
    run(lambda x: disabled(x + 1), X)


@program("SB011")
def _() -> None:
    run(lambda x: count(x, 905), X)


@program("SB013")
def _() -> None:
    run(lambda x: x + 0 * time.time(), X)


@program("SB014")
def _() -> None:
    outside = itertools.tee(map(abs, [1, 2, 3]))[0]
    run(lambda x: x + next(outside), X)


@program("SB015")
def _() -> None:
    run(lambda x: (open(os.devnull, "w").close(), x + 1)[1], X)


@program("SB016")
def _() -> None:
    weight = torch.ones(3, requires_grad=True)
    run(lambda x: (x * weight).sum().backward(), X * weight)


@program("SB017")
def _() -> None:
    run(lambda x: x[0].to_dense() + 1, torch.eye(3).to_sparse_csr())


@program("SB018")
def _() -> None:
    run(lambda x: (threading.Thread(target=len, args=("",)).start(), x + 1)[1], X)


@program("SB019")
def _() -> None:
    run(lambda x: (Finalized(), x + 1)[1], X)


@program("SB020")
def _() -> None:
    try:
        raise ValueError("outside")
    except ValueError as error:
        run(lambda x, e: (e.__traceback__.tb_lineno, x + 1)[1], X, error)


@program("SB021")
def _() -> None:
    compiled = stator.compile(lambda x, name: x + len(name), backend="eager", recompile_limit=1, fullgraph=True)
    compiled(X, "a")
    with pytest.raises(stator.Unsupported) as caught:
        compiled(X, "bc")
    events.emit(events.GraphBreak(caught.value.code, caught.value.title, "", "", None, None))


@program("SB022")
def _() -> None:
    run(lambda x: (stator.set_stance("default"), x + 1)[1], X)


@program("SB023")
def _() -> None:
    run(lambda x: (stator.skip_frame(), x + 1)[1], X)


@program("SB024")
def _() -> None:
    compiled = stator.compile(lambda x, name: x + len(name), backend="eager", recompile_limit=1)
    for name in ("a", "bc", "def"):
        assert compiled(X, name).equal(X + len(name))


@program("SB025")
def _() -> None:
    compiled = stator.compile(lambda x: x + 1, backend="eager", fullgraph=True)
    with pytest.raises(stator.Unsupported) as caught:
        torch.jit.trace(compiled, X)
    events.emit(events.GraphBreak(caught.value.code, caught.value.title, "", caught.value.remedy, None, None))


@pytest.mark.parametrize("code", sorted(breaks.REGISTRY))
def test_every_code_is_raised(code: str) -> None:
    assert code in PROGRAMS, "a new code needs a program that breaks with it"
    with events.record() as log, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PROGRAMS[code]()
    found = [event for event in log if isinstance(event, events.GraphBreak)]
    assert code in [event.code for event in found]
    for event in found:
        row = breaks.REGISTRY[event.code]
        assert event.title == row.title and event.remedy.startswith(row.remedy) or code == "SB021"


def literal_codes(tree: ast.AST) -> set[str]:
    """Codes that a module writes down: Break("SBnnn", ...), declined("SBnnn"), code="SBnnn"."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
            and len(node.value) == 5 and node.value.startswith("SB") and node.value[2:].isdigit()}


def test_no_code_is_written_that_is_not_registered() -> None:
    written: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        found = literal_codes(ast.parse(path.read_text()))
        assert found <= breaks.REGISTRY.keys(), f"{path.name}: {found - breaks.REGISTRY.keys()}"
        written |= found if path.name != "breaks.py" else set()
    assert written == breaks.REGISTRY.keys(), "a code that nothing raises"


def test_a_break_without_a_registered_code_is_an_error() -> None:
    with pytest.raises(stator.InternalError, match="SB999"):
        breaks.Break("SB999")


def test_every_row_says_everything_and_the_pages_are_up_to_date() -> None:
    for row in breaks.REGISTRY.values():
        assert row.title and row.cause and row.example and row.remedy
    assert breaks_docs.outdated(breaks_docs.FOLDER) == [], "run python -m tools.breaks_docs"


@pytest.mark.parametrize(("code", "native"), [("SB001", "one instruction runs natively"),
                                              ("SB008", "runs natively to its end"), ("SB021", "whole call")])
def test_a_page_says_what_runs_natively(code: str, native: str) -> None:
    assert native in breaks_docs.pages()[f"{code}.md"]
