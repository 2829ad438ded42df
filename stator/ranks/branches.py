"""Find the branch that separates two lines.   two call stacks  ->  `if step % 2:` at train.py:7

In: the lines that led two ranks to different collectives.  Out: the statement whose arms they took, from the source
files.  Nothing is recorded while a program runs.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Sequence
from typing import NamedTuple

Line = tuple[str, int]
_ARMS = ("body", "orelse", "handlers", "finalbody", "cases")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BRANCHES = (ast.If, ast.Match, ast.Try, ast.TryStar, *_LOOPS)
_EXITS = (ast.Return, ast.Raise, ast.Break, ast.Continue)


class Branch(NamedTuple):
    """A statement that decides which of two lines runs."""

    filename: str
    line: int
    code: str
    loops: bool

    def text(self) -> str:
        return f"`{self.code}` at {self.filename}:{self.line}"


class Step(NamedTuple):
    """A statement on the way to a line, and which of its arms has it."""

    statement: ast.stmt
    arm: str


def branch_between(mine: Sequence[Line], theirs: Sequence[Line]) -> Branch | None:
    """The branch that leads to one of two places and not to the other; both are stacks, the outermost line first."""
    same = next((i for i, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] != pair[1]), None)
    if same is None:  # one stack begins as the other: look at the deeper lines
        same = min(len(mine), len(theirs))
        return _first_branch(mine[same:]) or _first_branch(theirs[same:])
    (file, line), (other_file, other_line) = mine[same], theirs[same]
    if file == other_file:
        found = _separating(file, steps_to(file, line), steps_to(file, other_line))
        if found is not None:
            return found
    return (_first_branch(mine[same + 1:]) or _first_branch(theirs[same + 1:])
            or _exit_before(file, line) or _exit_before(other_file, other_line)
            or next((found for at in (*mine[same + 1:], *theirs[same + 1:]) if (found := _exit_before(*at))), None))


def steps_to(filename: str, line: int) -> list[Step]:
    """The statements around a line, the outermost first."""
    found: Sequence[ast.AST] = _statements(filename)
    steps: list[Step] = []
    while True:
        inner = next((each for each in found if _covers(each, line)), None)
        if inner is None:
            return steps
        arms: list[tuple[str, Sequence[ast.AST]]] = [(name, getattr(inner, name, ())) for name in _ARMS]
        arm, found = next((pair for pair in arms if any(_covers(each, line) for each in pair[1])), ("", ()))
        if isinstance(inner, ast.stmt):
            steps.append(Step(inner, arm))


@functools.lru_cache(16)
def _statements(filename: str) -> Sequence[ast.stmt]:
    try:
        return ast.parse("".join(linecache.getlines(filename))).body
    except (SyntaxError, ValueError):
        return ()


def _covers(node: ast.AST, line: int) -> bool:
    if isinstance(node, ast.match_case):
        return node.pattern.lineno <= line <= (node.body[-1].end_lineno or 0)
    first = min([getattr(node, "lineno", 1 << 60), *(each.lineno for each in getattr(node, "decorator_list", ()))])
    return first <= line <= (getattr(node, "end_lineno", None) or 0)


def _separating(filename: str, mine: list[Step], theirs: list[Step]) -> Branch | None:
    for index, (one, two) in enumerate(zip(mine, theirs, strict=False)):
        if (one.statement.lineno, one.arm) != (two.statement.lineno, two.arm):
            if one.statement.lineno == two.statement.lineno and isinstance(one.statement, _BRANCHES):
                return _as_branch(filename, one.statement)
            for step in (*mine[index:], *theirs[index:]):
                if isinstance(step.statement, _BRANCHES) and step.arm:
                    return _as_branch(filename, step.statement)
            return None
    return None


def _first_branch(lines: Sequence[Line]) -> Branch | None:
    """The innermost branch around the outermost of some lines that is inside one."""
    for filename, line in lines:
        steps = steps_to(filename, line)
        inside = max((i for i, step in enumerate(steps) if isinstance(step.statement, _functions)), default=-1)
        for step in steps[inside + 1:]:
            if isinstance(step.statement, _BRANCHES) and step.arm:
                return _as_branch(filename, step.statement)
    return None


_functions = (ast.FunctionDef, ast.AsyncFunctionDef)


def _exit_before(filename: str, line: int) -> Branch | None:
    """The last branch before a line, in its function, that may leave early."""
    steps = steps_to(filename, line)
    around = next((step.statement for step in reversed(steps) if isinstance(step.statement, _functions)), None)
    if around is None:
        return None
    found = [each for each in ast.walk(around) if isinstance(each, ast.If) and (each.end_lineno or line) < line
             and any(isinstance(inner, _EXITS) for inner in ast.walk(each))]
    return _as_branch(filename, max(found, key=lambda each: each.lineno)) if found else None


def _as_branch(filename: str, statement: ast.stmt) -> Branch:
    code = linecache.getline(filename, statement.lineno).strip()
    return Branch(filename, statement.lineno, code, isinstance(statement, _LOOPS))
