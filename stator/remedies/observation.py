"""Watch the original run: types of locals, and ways that branches take.

In: code objects of the user and a call.  Out: for each code object, the types that its names have held, and how often
each of its instructions ran.
"""

from __future__ import annotations

import ast
import collections
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch

Local = Callable[[FrameType, str, object], Any]  # a local trace function
Counts = collections.Counter[tuple[int, int, int]]  # line, column and offset of an instruction


@dataclass
class Observation:
    """Facts about code objects of one or more runs, by file name and qualified name."""

    types: dict[str, dict[str, set[type]]] = field(default_factory=dict)
    shapes: dict[str, dict[str, set[tuple[int, ...]]]] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)

    def watch(self, codes: Iterable[CodeType], call: Callable[[], object]) -> object:
        """Make a call, and note what the frames of some code objects do."""
        wanted = {(code.co_filename, code.co_qualname) for code in codes}

        def entered(frame: FrameType, event: str, arg: object) -> Local | None:
            code = frame.f_code
            if (code.co_filename, code.co_qualname) not in wanted:
                return None
            frame.f_trace_opcodes = True
            positions = list(code.co_positions())
            counts = self.counts.setdefault(code.co_qualname, collections.Counter())
            types = self.types.setdefault(code.co_qualname, {})
            shapes = self.shapes.setdefault(code.co_qualname, {})

            def local(frame: FrameType, event: str, arg: object) -> Local:
                if event == "opcode":
                    line, _, column, _ = positions[frame.f_lasti // 2]
                    if line is not None and column is not None:
                        counts[line, column, frame.f_lasti] += 1
                elif event in ("line", "return"):
                    for name, value in frame.f_locals.items():
                        types.setdefault(name, set()).add(type(value))
                        if isinstance(value, torch.Tensor):
                            shapes.setdefault(name, set()).add(tuple(value.shape))
                return local

            return local

        previous = sys.gettrace()
        sys.settrace(entered)
        try:
            return call()
        finally:
            sys.settrace(previous)

    def went_both_ways(self, function: str, branch: ast.If | ast.IfExp | ast.While) -> bool:
        """Whether the test of a branch was true once and false once."""
        counts = self.counts.get(function, collections.Counter())
        tested = _most(counts, branch.test)
        body = branch.body if isinstance(branch.body, list) else [branch.body]
        taken = max((_most(counts, each) for each in body[:1]), default=0)
        if isinstance(branch, ast.While):  # its call has returned: the test was false in the end
            return taken > 0
        if isinstance(branch.body, list) and branch.orelse or isinstance(branch, ast.IfExp):
            orelse = branch.orelse if isinstance(branch.orelse, list) else [branch.orelse]
            return taken > 0 and _most(counts, orelse[0]) > 0
        return 0 < taken < tested


def _most(counts: Counts, node: ast.stmt | ast.expr) -> int:
    """How often an instruction inside a node ran, at most."""
    first, last = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return max((count for (*place, _), count in counts.items() if first <= tuple(place) < last), default=0)
