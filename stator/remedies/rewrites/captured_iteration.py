"""A `while` on a tensor as an operator.   while t.sum() < 9: t = t * 2   ->   (t,) = torch.while_loop(test, body, (t,))

In: a `while` whose test is on data and whose body binds names.  Out: two functions, of the names that the loop carries
from one round to the next, and the call of torch.while_loop.  Numbers that the loop changes are tensors inside it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

import torch

from stator.remedies.registry import Candidate, Site, remedy
from stator.remedies.rewrites.branches import STYLES, Choices, Unsupported, edits_for, prepared
from stator.remedies.rewrites.local_names import all_names, bound_before, fresh, loaded, loaded_after, stored
from stator.remedies.rewrites.tensor_forms import NUMBERS, call

OPERATOR = "torch.while_loop" if hasattr(torch, "while_loop") else "torch._higher_order_ops.while_loop.while_loop"
ENDS = ast.Break | ast.Continue | ast.Return | ast.Yield | ast.YieldFrom | ast.Await | ast.Global | ast.Nonlocal
DTYPES = {int: "torch.int64", float: "torch.float64", bool: "torch.bool"}


@remedy("SB002", "SB003", rank=2)
def loop_in_the_graph(site: Site) -> Iterator[Candidate]:
    """The loop as one operator; results that are inputs of the body are copied where the operator refuses them."""
    for place in site.places:
        node = place.statement
        if not isinstance(node, ast.While) or node.orelse or site.function is None \
                or any(isinstance(each, ENDS) for each in ast.walk(node)):
            continue
        for style in STYLES[:2]:
            for copies in (False, True):
                choices, numbers = prepared(site, style)
                try:
                    statements = _operator(site, choices, node, copies)
                    edits = edits_for(site, [node], statements, numbers)
                except Unsupported:
                    continue
                yield Candidate("run the loop in the graph with torch.while_loop", edits, branches=(node,))


def _operator(site: Site, choices: Choices, node: ast.While, copies: bool) -> list[ast.stmt]:
    assert site.function is not None
    before, after = bound_before(site.function, node), loaded_after(site.function, [node])
    changed = stored(node.body)
    if lost := [name for name in changed if name not in before and name in after]:
        raise Unsupported(f"{lost[0]} is bound in the loop only")
    carried = [name for name in changed if name in before]
    if not carried:
        raise Unsupported("the loop carries no name")
    taken = all_names(site.function)
    test_name, body_name = fresh("goes_on", taken), fresh("one_round", taken)
    dtypes = {name: _dtype(site, name) for name in carried}
    test = choices.condition_of(node.test)
    if not any(name in carried for name in loaded([test])):
        raise Unsupported("the test reads no name that the loop changes")
    body = [_plain(copy.deepcopy(each), set(carried)) for each in node.body]
    results = [call(".clone", _load(name)) if copies else _load(name) for name in carried]
    given = [call("torch.tensor", _load(name), dtype=_name(dtypes[name])) if dtypes[name] else _load(name)
             for name in carried]
    made: list[ast.stmt] = [
        _function(test_name, carried, [ast.Return(test)]),
        _function(body_name, carried, [*body, ast.Return(ast.Tuple(results, ast.Load()))]),
        ast.Assign([ast.Tuple([ast.Name(name, ast.Store()) for name in carried], ast.Store())],
                   call(OPERATOR, _load(test_name), _load(body_name), ast.Tuple(given, ast.Load())))]
    made += [ast.Assign([ast.Name(name, ast.Store())], call(".item", _load(name)))
             for name in carried if dtypes[name] and name in after]
    return made


def _dtype(site: Site, name: str) -> str:
    """The type of the tensor for a number of Python; empty for tensors."""
    kinds = site.types.get(name, set())
    found = [kind for kind in NUMBERS if kind in kinds]
    if len(kinds) > 1 and found:
        raise Unsupported(f"{name} holds values of several types")
    return DTYPES[found[0]] if found else ""


def _plain(statement: ast.stmt, carried: set[str]) -> ast.stmt:
    """`x *= 2` as `x = x * 2`: the operator's body writes to no input."""
    for each in ast.walk(statement):
        for name, block in ast.iter_fields(each):
            if name in ("body", "orelse") and isinstance(block, list):
                block[:] = [_plain(inner, carried) for inner in block]
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name) \
            and statement.target.id in carried:
        return ast.Assign([statement.target], ast.BinOp(_load(statement.target.id), statement.op, statement.value))
    return statement


def _function(name: str, parameters: list[str], body: list[ast.stmt]) -> ast.FunctionDef:
    made = ast.parse(f"def {name}({', '.join(parameters)}): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.body = body
    return made


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _name(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
