"""Names of a function.   names read and written by statements; numbers that come from tensors; fresh names

In: statements of a function of the user.  Out: sets of names, and for each name that holds `t.item()` the tensor `t`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Mapping

from stator.remedies.rewrites.tensor_forms import Forms
from stator.remedies.source_text import Function, blocks_of


def loaded(nodes: Iterable[ast.AST]) -> set[str]:
    return {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)
            and isinstance(each.ctx, ast.Load)}


def stored(nodes: Iterable[ast.AST]) -> list[str]:
    """Names that statements bind, in order."""
    found = [each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)
             and isinstance(each.ctx, ast.Store)]
    return list(dict.fromkeys(found))


def parameters(function: Function) -> list[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [each.arg for each in [*every, *filter(None, (arguments.vararg, arguments.kwarg))]]


def all_names(function: Function) -> set[str]:
    return {each.id for each in ast.walk(function) if isinstance(each, ast.Name)} | set(parameters(function))


def fresh(wanted: str, taken: set[str]) -> str:
    """A name like the wanted one that the function does not have; it is taken from now on."""
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name


def bound_before(function: Function, statement: ast.stmt) -> set[str]:
    """Names that are certainly bound when a statement of the function begins: parameters and straight assignments."""
    found = set(parameters(function))

    def walk(block: list[ast.stmt]) -> bool:
        for each in block:
            if each is statement:
                return True
            if isinstance(each, ast.For):
                inside = set(stored([each.target]))
                if any(statement is node for node in ast.walk(each)):
                    found.update(inside)
            for nested in blocks_of(each):
                if any(statement is node for part in nested for node in ast.walk(part)):
                    return walk(nested)
            if isinstance(each, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.With):
                found.update(stored([each]))
            elif isinstance(each, ast.If) and each.orelse:
                found.update(set(stored(each.body)) & set(stored(each.orelse)))
        return False

    walk(function.body)
    return found


def loaded_after(function: Function, statements: list[ast.stmt]) -> set[str]:
    """Names that the rest of the function may read; inside a loop, also what stands before."""
    inside = {id(node) for each in statements for node in ast.walk(each)}
    first, last = statements[0].lineno, statements[-1].end_lineno or 0
    looped = any(isinstance(loop, ast.For | ast.While) and loop.lineno <= first and (loop.end_lineno or 0) >= last
                 and id(loop) not in inside for loop in ast.walk(function))
    return {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            and id(node) not in inside and (looped or node.lineno > last)}


def tensors_of_numbers(function: Function, types: Mapping[str, set[type]], double: bool,
                       ) -> dict[str, tuple[ast.Assign, ast.expr]]:
    """Names that hold a number out of a tensor, with their only assignment and the form of its value."""
    counts: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] = counts.get(node.id, 0) + 1
    found: dict[str, tuple[ast.Assign, ast.expr]] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if counts[name] != 1 or name in parameters(function):
            continue
        forms = Forms({each: ast.Name(f"{each}_tensor", ast.Load()) for each in found}, types, double)
        if not forms.is_number(node.value):
            continue
        form = forms.of(node.value)
        if form is not None and forms.used:
            found[name] = (node, form)
    return found


class Renamed(ast.NodeTransformer):
    """A copy of nodes with other names."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:  # noqa: N802  as ast calls it
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)


def renamed(node: ast.expr, names: Mapping[str, str]) -> ast.expr:
    made = Renamed(names).visit(copy.deepcopy(node))
    assert isinstance(made, ast.expr)
    return made
