"""The table of rewrites.   @remedy("SB002", rank=1)  def choose_with_where(site): yield Candidate(...)

In: a `Site`, the place of a break or recompile in the source.  Out: candidates, by rank.
"""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stator.remedies.source_text import Edit, Function, SourceText, StatementPlace, places_at, replacement

RECOMPILE, EAGER = "recompile", "eager"  # in place of a break code


@dataclass(frozen=True)
class Problem:
    """One break, recompile or eager call, at the user's line."""

    code: str  # a break code, RECOMPILE or EAGER
    cause: str
    filename: str | None
    line: int | None

    def __str__(self) -> str:
        place = "" if self.filename is None else f" at {self.filename.partition('#remedy')[0]}:{self.line}"
        return f"{self.code} {self.cause.partition(chr(10))[0]}{place}"


@dataclass(frozen=True)
class Candidate:
    """A change that is to be tried."""

    title: str
    edits: tuple[Edit, ...] = ()
    definitions: str = ""  # new functions of the module, before the one that breaks
    settings: Mapping[str, object] = field(default_factory=dict)  # of compile()
    added: Mapping[str, str] = field(default_factory=dict)  # arguments that callers compute: name, expression
    branches: tuple[ast.If | ast.IfExp | ast.While, ...] = ()  # both ways must be compared
    note: str = ""


@dataclass(frozen=True)
class Site:
    """A problem and the statements around it; `functions` are the originals that have this code."""

    problem: Problem
    text: SourceText | None = None
    qualname: str = ""
    function: Function | None = None
    functions: Sequence[types.FunctionType] = ()
    types: Mapping[str, set[type]] = field(default_factory=dict)
    shapes: Mapping[str, set[tuple[int, ...]]] = field(default_factory=dict)
    is_entry: bool = False  # the function is the one that is compiled

    @functools.cached_property
    def places(self) -> list[StatementPlace]:
        """The statements around the line, the innermost first."""
        if self.function is None or self.problem.line is None:
            return []
        return places_at(self.function.body, self.problem.line)[::-1]

    def replace(self, old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> Edit:
        assert self.text is not None
        return replacement(self.text, old, new)


Rewrite = Callable[[Site], Iterator[Candidate]]
_rewrites: dict[str, list[tuple[int, Rewrite]]] = {}


def remedy(*codes: str, rank: int) -> Callable[[Rewrite], Rewrite]:
    """Register a rewrite for break codes, RECOMPILE or EAGER; lower ranks are tried first."""

    def decorate(rewrite: Rewrite) -> Rewrite:
        for code in codes:
            rows = _rewrites.setdefault(code, [])
            rows.append((rank, rewrite))
            rows.sort(key=lambda row: row[0])
        return rewrite

    return decorate


def candidates(site: Site) -> Iterator[Candidate]:
    """Everything to try at a place."""
    for _, rewrite in _rewrites.get(site.problem.code, ()):
        yield from rewrite(site)


def covered_codes() -> list[str]:
    """Codes for which there is a rewrite."""
    return sorted(_rewrites)
