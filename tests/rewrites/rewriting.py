"""Rewrites that keep a program's meaning.

In: the function definition of a case, as a syntax tree.  Out: `REWRITES`, each of which changes the tree in place and says
whether it found something to change. New nodes keep the lines of what they replace, so that tracebacks can be compared.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp,
          ast.GeneratorExp)
# What the rewritten programs call; joined to the module's own names.
HELPERS = '''
import contextlib as _contextlib


def _each(_items):
    for _item in _items:
        yield _item
'''


def own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function that belong to its own scope."""
    ahead: list[ast.AST] = list(function.body)
    while ahead:
        node = ahead.pop(0)
        yield node
        if not isinstance(node, SCOPES):
            ahead.extend(ast.iter_child_nodes(node))


def statement(text: str, like: ast.AST) -> ast.stmt:
    """A statement from its text, at the line of another."""
    made = ast.parse(text).body[0]
    for node in ast.walk(made):
        ast.copy_location(node, like)
    return made


def around(text: str, body: list[ast.stmt]) -> list[ast.stmt]:
    """`text` with its first `pass` replaced by the body."""
    outer = statement(text, body[0])
    for node in ast.walk(outer):
        inner = getattr(node, "body", None)
        if isinstance(inner, list) and len(inner) == 1 and isinstance(inner[0], ast.Pass):
            node.body = body  # type: ignore[attr-defined]
            return [outer]
    raise ValueError(text)


def undocumented(function: ast.FunctionDef) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Split a body: statements that have to stay in front (the docstring, `global`), and the rest."""
    front = 0
    while front < len(function.body) - 1 and (
            isinstance(function.body[front], (ast.Global, ast.Nonlocal))
            or isinstance(function.body[front], ast.Expr) and isinstance(function.body[front].value, ast.Constant)):  # type: ignore[attr-defined]
        front += 1
    return function.body[:front], function.body[front:]


def in_try_finally(function: ast.FunctionDef) -> bool:
    front, body = undocumented(function)
    function.body = front + around("try:\n    pass\nfinally:\n    _done = True", body)
    return True


def in_try_except(function: ast.FunctionDef) -> bool:
    front, body = undocumented(function)
    function.body = front + around("try:\n    pass\nexcept GeneratorExit:\n    raise", body)
    return True


def in_with(function: ast.FunctionDef) -> bool:
    front, body = undocumented(function)
    function.body = front + around("with _contextlib.nullcontext():\n    pass", body)
    return True


def in_while(function: ast.FunctionDef) -> bool:
    front, body = undocumented(function)
    function.body = front + around("while True:\n    pass", [*body, statement("break", body[-1])])
    return True


def in_closure(function: ast.FunctionDef) -> bool:
    """The body in a nested function that sees the arguments as variables of the function around it."""
    stores = {node.id for node in own_nodes(function) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    given = function.args
    names = {arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if arg}
    if any(isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.Global)) for node in own_nodes(function)):
        return False
    inner = ast.copy_location(statement("def _inner():\n    pass", function.body[0]), function.body[0])
    assert isinstance(inner, ast.FunctionDef)
    inner.body = function.body
    if stores & names:
        inner.body = [statement(f"nonlocal {', '.join(sorted(stores & names))}", function.body[0]), *inner.body]
    function.body = [inner, statement("return _inner()", function.body[-1])]
    return True


def with_dead_branches(function: ast.FunctionDef) -> bool:
    front, body = undocumented(function)
    made: list[ast.stmt] = []
    for each in body:
        made += [statement("if len(()) > 0:\n    _never = _undefined + 1\n    raise RuntimeError(_never)", each), each]
    function.body = front + made
    return True


def loops_over_generators(function: ast.FunctionDef) -> bool:
    found = False
    for node in own_nodes(function):
        if isinstance(node, ast.For):
            call = ast.Call(ast.Name("_each", ast.Load()), [node.iter], [])
            node.iter = ast.copy_location(call, node.iter)
            ast.copy_location(call.func, node.iter)
            found = True
    return found


def returns_outlined(function: ast.FunctionDef) -> bool:
    """return f(x)  ->  return (lambda: f(x))()"""
    found = False
    for node in own_nodes(function):
        if isinstance(node, ast.Return) and node.value is not None and not any(
                isinstance(part, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for part in ast.walk(node.value)):
            empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
            outlined = ast.copy_location(ast.Lambda(empty, node.value), node.value)
            node.value = ast.copy_location(ast.Call(outlined, [], []), node.value)
            found = True
    return found


def assigned_by_unpacking(function: ast.FunctionDef) -> bool:
    """x = e  ->  (x,) = (e,)"""
    found = False
    for node in own_nodes(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            target = ast.copy_location(ast.Tuple([node.targets[0]], ast.Store()), node.targets[0])
            node.targets = [target]
            node.value = ast.copy_location(ast.Tuple([node.value], ast.Load()), node.value)
            found = True
    return found


def branches_turned(function: ast.FunctionDef) -> bool:
    """if c: a else: b  ->  if not c: b else: a"""
    found = False
    for node in own_nodes(function):
        if isinstance(node, ast.If) and node.orelse:
            node.test = ast.copy_location(ast.UnaryOp(ast.copy_location(ast.Not(), node.test), node.test), node.test)
            node.body, node.orelse = node.orelse, node.body
            found = True
    return found


class _Renamed(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self.new, node.ctx), node) if node.id == self.old else node


def comprehensions_as_loops(function: ast.FunctionDef) -> bool:
    """x = [f(i) for i in xs if g(i)]  ->  _made = []; for _i in xs: if g(_i): _made.append(f(_i)); x = _made"""
    found = False
    for owner in [function, *own_nodes(function)]:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(owner, field, None)
            if isinstance(block, list) and not (isinstance(owner, SCOPES) and owner is not function):
                unrolled = [part for each in block for part in _unrolled(each)]
                found |= len(unrolled) > len(block)
                setattr(owner, field, unrolled)
    return found


def _unrolled(each: ast.stmt) -> list[ast.stmt]:
    if not (isinstance(each, (ast.Assign, ast.Return)) and isinstance(each.value, ast.ListComp)):
        return [each]
    made = each.value
    first = made.generators[0]
    if len(made.generators) > 1 or not isinstance(first.target, ast.Name) or first.is_async or any(
            isinstance(part, SCOPES + (ast.NamedExpr, ast.Await)) for part in [*ast.walk(made.elt), *map(ast.If, first.ifs)]):
        return [each]
    change = _Renamed(first.target.id, "_" + first.target.id)
    loop = statement("for _i in ():\n    _made.append(0)", each)
    assert isinstance(loop, ast.For)
    loop.target, loop.iter = change.visit(first.target), first.iter
    append = loop.body[0].value  # type: ignore[attr-defined]
    append.args = [change.visit(made.elt)]
    for condition in reversed(first.ifs):
        loop.body = [ast.copy_location(ast.If(change.visit(condition), loop.body, []), each)]
    each.value = ast.copy_location(ast.Name("_made", ast.Load()), each.value)
    return [statement("_made = []", each), loop, each]


REWRITES: dict[str, Callable[[ast.FunctionDef], bool]] = {
    "try finally": in_try_finally, "try except": in_try_except, "with": in_with, "while": in_while, "closure": in_closure,
    "dead branches": with_dead_branches, "generators": loops_over_generators, "outlined returns": returns_outlined,
    "unpacking": assigned_by_unpacking, "turned branches": branches_turned, "comprehensions": comprehensions_as_loops,
}  # fmt: skip
