"""Expressions as the user writes them.   the offset of an instruction  ->  math.sqrt(x.max().item())

In: positions that the compiler of CPython keeps for each instruction.  Out: the text between them, on one line.
"""

from __future__ import annotations

import ast
import linecache
from types import CodeType

LONGEST = 60


def expression_at(code: CodeType, offset: int) -> str:
    """The source of one instruction; empty where the code has no file or the instruction no position."""
    line, end_line, start, end = next((found for number, found in enumerate(code.co_positions())
                                       if number == offset // 2), (None, None, None, None))
    if line is None or end_line is None or start is None or end is None:
        return ""
    try:
        lines = [linecache.getline(code.co_filename, number).encode() for number in range(line, end_line + 1)]
    except ValueError:  # a code object may be called anything
        return ""
    lines[-1] = lines[-1][:end]  # before the first is cut: they may be one, and offsets count bytes
    lines[0] = lines[0][start:]
    text = b" ".join(lines).decode("utf-8", "replace")
    try:
        ast.parse(f"({text})", mode="eval")
    except (SyntaxError, ValueError):
        return ""  # a statement: that of a `for` or `with`
    return shortened(" ".join(text.split()))


def line_at(code: CodeType, offset: int) -> int:
    """The line of one instruction; of the function, where it has none."""
    found = next((line for start, end, line in code.co_lines() if start <= offset < end), None)
    return found or code.co_firstlineno


def shortened(text: str) -> str:
    """A long text without its middle."""
    if len(text) <= LONGEST:
        return text
    half = (LONGEST - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"
