"""Impure reads and changing texts as arguments.   time.time()  ->  a keyword argument that the caller computes

In: an expression of globals and parameters in the compiled function itself.  Out: a keyword-only parameter in its
place, and the expression for the caller.  The value is then read before the call, not in the middle of it.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
from collections.abc import Iterator

from stator.remedies.registry import RECOMPILE, Candidate, Site, remedy
from stator.remedies.rewrites.local_names import all_names, fresh, loaded, parameters
from stator.remedies.source_text import Edit

BUILTINS = frozenset(dir(builtins))
CLOCKS = re.compile(r"(time\.)?(time|monotonic|perf_counter|process_time|time_ns|monotonic_ns|perf_counter_ns)\(\)")


@remedy("SB013", rank=5)
def hoist_reads(site: Site) -> Iterator[Candidate]:
    """A call without local names; two reads of a clock measure what is between them, and stay."""
    if site.function is None or not site.is_entry or not site.places:
        return
    clocks = [node for node in ast.walk(site.function)
              if isinstance(node, ast.Call) and CLOCKS.fullmatch(ast.unparse(node))]
    if len(clocks) > 1:
        return
    for node in ast.walk(site.places[0].statement):
        if isinstance(node, ast.Call) and not loaded([node]) & (set(site.types) | all_names(site.function) - loaded(
                [node])) and not isinstance(node.func, ast.Name):
            yield from _hoisted(site, node, "read the value before the call, and pass it in")


@remedy("SB024", "SB021", RECOMPILE, rank=5)
def hoist_texts(site: Site) -> Iterator[Candidate]:
    """Everything that the function computes from a parameter that is a text, where nothing else enters."""
    if site.function is None or not site.is_entry:
        return
    texts = {name for name in parameters(site.function) if site.types.get(name) == {str}}
    for name in sorted(texts):
        finder = _Uses(name)
        finder.visit(site.function)
        if finder.found and finder.other == 0:
            yield from _changed(site, finder.found, "pass the needed part of the text, not the text")


class _Uses(ast.NodeVisitor):
    """The largest expressions of one name and constants alone, and other uses of the name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: list[ast.expr] = []
        self.other = 0

    def visit(self, node: ast.AST) -> None:
        scopes = ast.Lambda | ast.ListComp | ast.GeneratorExp
        if isinstance(node, ast.Call | ast.Compare | ast.Subscript) and loaded([node]) - BUILTINS == {self.name} \
                and not any(isinstance(each, scopes) for each in ast.walk(node)):
            self.found.append(node)
        elif isinstance(node, ast.Name) and node.id == self.name:
            self.other += 1
        else:
            self.generic_visit(node)


def _hoisted(site: Site, node: ast.expr, title: str) -> Iterator[Candidate]:
    return _changed(site, [node], title)


def _changed(site: Site, nodes: list[ast.expr], title: str) -> Iterator[Candidate]:
    """The function with a keyword-only parameter for each expression."""
    assert site.function is not None and site.text is not None
    taken = all_names(site.function)
    names: dict[str, str] = {}
    function = copy.deepcopy(site.function)
    added: dict[str, str] = {}
    for node in nodes:
        if ast.dump(node) not in names:
            text = ast.unparse(node)
            name = fresh(re.sub(r"\W+", "_", text).strip("_").lower() or "value", taken)
            names[ast.dump(node)], added[name] = name, text
            function.args.kwonlyargs.append(ast.arg(name))
            function.args.kw_defaults.append(None)
    header = _header(site, function)
    edits = [] if header is None else [header]
    for statement in site.function.body:
        made = _Replaced(names).visit(copy.deepcopy(statement))
        assert isinstance(made, ast.stmt)
        if ast.dump(made) != ast.dump(statement):
            edits.append(site.replace([statement], [made]))
    if header is not None:
        yield Candidate(title, tuple(edits), added=added, note="callers pass the value; it is read before the call")


class _Replaced(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and (name := self.names.get(ast.dump(node))) is not None:
            return ast.Name(name, ast.Load())
        return self.generic_visit(node)


def _header(site: Site, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Edit | None:
    """The line of `def` with the new parameter."""
    assert site.function is not None and site.text is not None
    first, last = site.function.lineno, site.function.body[0].lineno - 1
    if last < first:
        return None
    while last > first and not site.text.lines[last - 1].rstrip().endswith(":"):
        last -= 1
    function.body, function.decorator_list = [ast.Pass()], []
    made = ast.unparse(ast.fix_missing_locations(function)).splitlines()[0]
    return Edit(first, last, (" " * site.function.col_offset + made,))
