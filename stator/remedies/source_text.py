"""Source files with changed lines.   SourceText(file, text).changed(edits)  ->  a new SourceText

In: the text of a file of the user.  Out: its tree, its functions by qualified name, the code objects of a changed text,
and unified diffs.  The file itself is never written.
"""

from __future__ import annotations

import ast
import collections
import difflib
import functools
import io
import itertools
import linecache
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType

Function = ast.FunctionDef | ast.AsyncFunctionDef
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Edit:
    """Replace the lines `first` to `last`, both included; with `last` before `first`, insert before `first`."""

    first: int
    last: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class StatementPlace:
    """One statement of a block."""

    block: list[ast.stmt]
    index: int

    @property
    def statement(self) -> ast.stmt:
        return self.block[self.index]


@dataclass(frozen=True)
class SourceText:
    """A file of the user, or a changed copy of it; `name` is the file name of its code objects."""

    filename: str
    text: str
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.filename)

    @classmethod
    def of_file(cls, filename: str) -> SourceText | None:
        """The text of a file, or None where there is none that Python can parse."""
        text = "".join(linecache.getlines(filename))
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            return None
        return cls(filename, text) if text else None

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @functools.cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def changed(self, edits: Sequence[Edit]) -> SourceText:
        """Apply edits, all by the line numbers of this text."""
        lines = list(self.lines)
        for edit in sorted(edits, key=lambda each: (each.first, each.last), reverse=True):
            lines[edit.first - 1:max(edit.last, edit.first - 1)] = edit.lines
        text = "\n".join(lines) + "\n"
        ast.parse(text)
        made = SourceText(self.filename, text, f"{self.filename}#remedy{next(_numbers)}")
        linecache.cache[made.name] = (len(text), None, text.splitlines(keepends=True), made.name)
        return made

    def diff(self, other: SourceText) -> str:
        """The unified diff to a changed copy."""
        return "\n".join(difflib.unified_diff(self.lines, other.lines, self.filename, self.filename, lineterm="", n=2))

    # ------------------------------------------------------------------ functions

    @functools.cached_property
    def functions(self) -> list[tuple[str, Function]]:
        """Every `def` with its qualified name, in the order of the text."""
        return list(_functions(self.tree, ""))

    def function_at(self, line: int) -> list[tuple[str, Function]]:
        """The functions around a line, the innermost first."""
        found = [(name, node) for name, node in self.functions if first_line(node) <= line <= (node.end_lineno or 0)]
        return found[::-1]

    def numbered(self) -> list[tuple[str, int]]:
        """Names of functions, each with its position among those of the same name."""
        seen: collections.Counter[str] = collections.Counter()
        found = []
        for name, _ in self.functions:
            found.append((name, seen[name]))
            seen[name] += 1
        return found

    def code_of(self, name: str, ordinal: int) -> CodeType | None:
        """The code object of a function of this text."""
        found = self._codes.get(name, [])
        return found[ordinal] if ordinal < len(found) else None

    @functools.cached_property
    def _codes(self) -> dict[str, list[CodeType]]:
        found: dict[str, list[CodeType]] = {}
        for code in _codes(self._compiled):
            found.setdefault(code.co_qualname, []).append(code)
        return found

    @functools.cached_property
    def _compiled(self) -> CodeType:
        return compile(self.text, self.name, "exec", dont_inherit=True)


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
            yield from _functions(child, f"{prefix}{child.name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def same_code(old: CodeType, new: CodeType) -> bool:
    """Whether two code objects differ in lines and file names alone."""
    return old.co_code == new.co_code and old.co_names == new.co_names and old.co_varnames == new.co_varnames \
        and old.co_argcount == new.co_argcount and old.co_kwonlyargcount == new.co_kwonlyargcount \
        and len(old.co_consts) == len(new.co_consts) and all(
            same_code(mine, other) if isinstance(mine, CodeType) and isinstance(other, CodeType)
            else repr(mine) == repr(other) for mine, other in zip(old.co_consts, new.co_consts, strict=True))


def first_line(node: ast.AST) -> int:
    """The first line of a statement, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return int(min(each.lineno for each in [*decorators, node]))  # type: ignore[attr-defined]


def blocks_of(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks inside a statement, but for those of functions and classes."""
    if isinstance(statement, Function | ast.ClassDef):
        return []
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    return [block for block in [*blocks, *(each.body for each in getattr(statement, "handlers", []))] if block]


def places_at(block: list[ast.stmt], line: int) -> list[StatementPlace]:
    """The statements around a line, the outermost first."""
    for index, statement in enumerate(block):
        if first_line(statement) <= line <= (statement.end_lineno or 0):
            inside = [places_at(each, line) for each in blocks_of(statement)]
            return [StatementPlace(block, index), *(place for found in inside for place in found)]
    return []


def replacement(text: SourceText, old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> Edit:
    """The edit that puts new statements in the place of old ones."""
    first, last = first_line(old[0]), old[-1].end_lineno or 0
    indent = " " * old[0].col_offset
    lines = [indent + line if line else line for statement in new
             for line in ast.unparse(ast.fix_missing_locations(statement)).splitlines()]
    kept = [indent + comment for comment in comments_in(text.lines[first - 1:last])]
    return Edit(first, last, (*kept, *lines))


def comments_in(lines: Sequence[str]) -> list[str]:
    """The comments of some lines, which a tree does not have."""
    source = textwrap.dedent("\n".join(lines)) + "\n"
    try:
        return [each.string for each in tokenize.generate_tokens(io.StringIO(source).readline)
                if each.type == tokenize.COMMENT]
    except (tokenize.TokenError, SyntaxError):
        return []
