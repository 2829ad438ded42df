"""Text that came from outside is data: names and strings made to look like code never run.

In: attribute names, keys, keyword names, class, function and variable names that are pieces of Python.  Out: the
values of eager, and a canary that nobody touched.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import stator

PIECES = [
    "x'] or canary() or ['", 'x"] or canary() or ["', "a); canary(); (", "a\ncanary()\n", "{canary()}", "a b", "1",
    "class", "'''", '"""', "\\", "\0", "\N{SNOWMAN}", "__import__('os')", "%s%(x)s", "#", "out", "graph", "residual", "",
]


@pytest.fixture(autouse=True)
def canary() -> Iterator[list[int]]:
    sung: list[int] = []
    builtins.canary = lambda: sung.append(1) or True  # type: ignore[attr-defined]
    yield sung
    del builtins.canary  # type: ignore[attr-defined]
    assert not sung, "text from outside was run"


class Bag:
    pass


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("broken", [False, True])
def test_text_is_data(piece: str, broken: bool) -> None:
    def program(x: torch.Tensor, bag: Any, table: dict[str, Any], **named: Any) -> Any:
        y = x + getattr(bag, piece)
        setattr(bag, piece + "_", y)
        table[piece + "!"] = y * table[piece]
        made = type(piece.replace("\0", "") or "T", (), {piece: 3})()
        if broken:
            stator.graph_break(piece)
        print(piece, f"{piece}")
        return y + named[piece], {piece: y, "made": getattr(made, piece)}, sorted(named)

    def world() -> tuple[Any, dict[str, Any]]:
        bag = Bag()
        setattr(bag, piece, 2)
        return bag, {piece: 5}

    x = torch.arange(3.0)
    bag, table = world()
    expected = program(x, bag, table, **{piece: 7})
    compiled = stator.compile(program, backend="eager")
    for _ in range(2):
        other, other_table = world()
        got = compiled(x, other, other_table, **{piece: 7})
        assert torch.equal(got[0], expected[0]) and got[2] == expected[2] and got[1].keys() == expected[1].keys()
        assert torch.equal(getattr(other, piece + "_"), getattr(bag, piece + "_"))
        assert torch.equal(other_table[piece + "!"], table[piece + "!"])


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("broken", [False, True])
def test_names_of_code_are_data(piece: str, broken: bool) -> None:
    """A code object may call its variables, itself and its file anything."""
    def program(value: torch.Tensor, other: int) -> torch.Tensor:
        kept = value + other
        if broken:
            stator.graph_break()
        return kept * 2

    code = program.__code__
    if not piece or "\0" in piece:
        renamed = code.replace(co_name=piece, co_qualname=piece)
    else:
        renamed = code.replace(co_varnames=(piece, piece + "2", piece + "3"), co_name=piece, co_qualname=piece,
                               co_filename=piece)
    function = types.FunctionType(renamed, globals(), piece, None, program.__closure__)
    compiled = stator.compile(function, backend="eager")
    x = torch.arange(3.0)
    for _ in range(2):
        assert torch.equal(compiled(x, 3), (x + 3) * 2)
    explained = stator.explain(function)(x, 3)
    assert str(explained)
