"""Entries of a contract, and the facts that each covers.   "x.shape[1]"  ->  covers x.size(1)

In: expressions as the user writes them, patterns with `*`, names of presets.  Out: `Pattern`, compared with facts.

    x.size(1), x.shape[-1]      one size                    self.scale, n, flags[0]     a value, and all inside it
    x.shape                     all sizes, and their count  mask is None, type(x), x.dtype, len(xs), "key" in config
    self.lora_*                 every fact with such a text torch.grad_enabled          a setting of torch
"""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass

from stator.errors import OptionTypeError, OptionValueError

PRESETS: dict[str, tuple[str, ...]] = {
    "batch_sizes": ("*.size(0)",),
    "lengths": ("*.size(1)",),
    "weight_reloads": ("*",),
    "lora_swaps": ("*lora_*", "*.scaling*", "*active_adapter*", "*.merged*"),
}
ARGUMENTS, WEIGHTS = "arguments", "weights"
SCOPES = {"batch_sizes": ARGUMENTS, "lengths": ARGUMENTS, "weight_reloads": WEIGHTS}
_ARGUMENT = re.compile(r"(?!self\b)\w+(\[[^\]]+\])*")


@dataclass(frozen=True)
class Fact:
    """One fact of a call that a guard has read: `x.size(1)` of `x`; `rank`: of a tensor."""

    text: str
    subject: str
    rank: int = 0
    is_weight: bool = False  # of a parameter or buffer of a module
    operands: tuple[Fact, ...] = ()  # of a relation between sizes and numbers: each of them

    @property
    def size_index(self) -> int | None:
        found = re.fullmatch(r"\.size\((\d+)\)", self.text.removeprefix(self.subject))
        return int(found[1]) if found is not None and self.text.startswith(self.subject) else None


@dataclass(frozen=True)
class Pattern:
    """One entry of a contract."""

    text: str
    shown: str  # as the user wrote it
    glob: bool = False
    scope: str = ""  # the values that a preset is about; empty: all

    def covers(self, fact: Fact) -> bool:
        if any(map(self.covers, fact.operands)):
            return True
        if self.scope == ARGUMENTS and _ARGUMENT.fullmatch(fact.subject) is None or self.scope == WEIGHTS and (
                not fact.is_weight or fact.size_index is not None or fact.text.endswith(".dim()")):
            return False
        if self.glob:
            return fnmatch.fnmatchcase(fact.text, self.text) or fnmatch.fnmatchcase(fact.subject, self.text)
        if self.text in (fact.text, fact.subject) or fact.subject.startswith((f"{self.text}.", f"{self.text}[")):
            return True
        index = fact.size_index
        if index is None:
            return self.text == f"{fact.subject}.shape" and fact.text == f"{fact.subject}.dim()" or (
                self.text == f"{fact.subject}.stride()" and fact.text.startswith(self.text[:-1]))
        return self.text in (f"{fact.subject}.shape", f"{fact.subject}.size({index - fact.rank})")

    def names(self) -> set[str]:
        """Names in an expression; none in a pattern."""
        if self.glob:
            return set()
        found = {node.id for node in ast.walk(ast.parse(self.text, mode="eval")) if isinstance(node, ast.Name)}
        return found - {"len", "type", "list"}


def read_patterns(name: str, entries: object, of_module: bool) -> tuple[Pattern, ...]:
    """Check the entries of `varies=` or `fixed=`; `of_module`: the compiled module may be called `model`, too."""
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise OptionTypeError(f"{name}={entries!r} is not accepted; use a list of expressions: {name}=['x.size(1)']")
    return tuple(pattern for entry in entries for pattern in _read(name, entry, of_module))


def _read(name: str, entry: object, of_module: bool) -> list[Pattern]:
    if not isinstance(entry, str) or not entry.strip():
        raise OptionTypeError(f"{name} holds {entry!r}; use expressions as text: 'x.size(1)', 'mask is None'")
    if entry in PRESETS:
        return [Pattern(text, entry, True, SCOPES.get(entry, "")) for text in PRESETS[entry]]
    try:
        return [Pattern(rooted(canonical(ast.parse(entry.strip(), mode="eval").body), of_module), entry)]
    except SyntaxError:
        if "*" in entry:
            return [Pattern(rooted(entry.strip(), of_module), entry, glob=True)]
    raise OptionValueError(f"{name} holds {entry!r}, which is no expression, no pattern with *, and no preset "
                           f"({', '.join(sorted(PRESETS))})")


def rooted(text: str, of_module: bool) -> str:
    """`model.scale` -> `self.scale` where a module is compiled: reports and users have both names for it."""
    return re.sub(r"(?<![\w.'\"])model(?=[.\[]|$)", "self", text) if of_module else text


def canonical(node: ast.expr) -> str:
    """One spelling for one fact: `x.shape[1]` -> `x.size(1)`, `x is not None` -> `x is None`."""
    match node:
        case ast.Subscript(value=ast.Attribute(value=tensor, attr="shape"), slice=index):
            return f"{canonical(tensor)}.size({canonical(index)})"
        case ast.Call(func=ast.Attribute(value=tensor, attr="size" | "dim" as method), args=[], keywords=[]):
            return f"{canonical(tensor)}.{'shape' if method == 'size' else 'dim()'}"
        case ast.Attribute(value=tensor, attr="ndim"):
            return f"{canonical(tensor)}.dim()"
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return f"{canonical(left)} is None"
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[container]):
            return f"{canonical(left)} in {canonical(container)}"
    return ast.unparse(node)
