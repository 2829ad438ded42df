"""Texts of residual programs in linecache: each stays as long as its own program."""

from __future__ import annotations

import gc
import linecache
from typing import Any

from stator.emit.residual.residual import Residual


def linked(number: int) -> Any:
    return Residual(f"def residual():\n    return {number}\n", {}, [], None, []).link(None)


def test_a_text_outlives_a_program_that_came_before() -> None:
    """A program may be let go after the parts of a later one have taken the addresses of its own."""
    first, second = linked(1), linked(2)
    name = second.__code__.co_filename
    assert (first(), second()) == (1, 2) and first.__code__.co_filename != name
    del first
    gc.collect()
    assert linecache.cache[name][2] == ["def residual():\n", "    return 2\n"]
    del second
    gc.collect()
    assert name not in linecache.cache
