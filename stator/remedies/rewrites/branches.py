"""Branches on tensors as choices between values.   if t > 0: x = a   ->   x = torch.where(t > 0, a, x)

In: an `if`, a conditional expression, `and`, `or`, `not`, min() or max() on tensors or on numbers out of tensors.
Out: straight code that computes both ways and chooses. A body may bind names, store items and attributes, write to
tensors in place, and return; each write keeps the old value where its way is not taken.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stator.remedies.registry import RECOMPILE, Candidate, Site, remedy
from stator.remedies.rewrites.local_names import (
    all_names,
    bound_before,
    fresh,
    loaded,
    loaded_after,
    renamed,
    stored,
    tensors_of_numbers,
)
from stator.remedies.rewrites.tensor_forms import (
    Forms,
    as_tensor,
    call,
    condition,
    expression,
    lifted,
    negated,
    where,
)
from stator.remedies.source_text import Edit, Function

NEW_VALUE = {"zero_": "torch.zeros_like", "fill_": "torch.full_like", "copy_": ""}


class Unsupported(Exception):
    """A branch has a statement that cannot be made a choice."""


@dataclass
class Style:
    """How numbers become tensors; the trial decides which is right."""

    double: bool = True  # of `.item()` in conditions
    number: str = ""  # stored attributes and returned numbers: "" for tensors, else int() or float() of the choice


@dataclass
class Choices:
    """Turns the ways of one branch into straight code."""

    site: Site
    function: Function
    style: Style
    taken: set[str]
    forms: Forms
    statements: list[ast.stmt] = field(default_factory=list)
    branches: list[ast.If | ast.IfExp] = field(default_factory=list)

    def condition_name(self, test: ast.expr) -> ast.expr:
        """Compute a condition once."""
        made = self.condition_of(test)
        name = fresh("taken", self.taken)
        self.statements.append(ast.Assign([ast.Name(name, ast.Store())], made))
        return ast.Name(name, ast.Load())

    def condition_of(self, test: ast.expr) -> ast.expr:
        before = self.forms.used
        made = condition(self.forms, test)
        if made is None:
            raise Unsupported(ast.unparse(test))
        if self.forms.used == before and self.site.problem.code == "SB003":
            made = lifted(made)
        return as_tensor(made)

    def choose(self, test: ast.expr, then: ast.expr, other: ast.expr) -> ast.expr:
        """One value of two; tuples, lists and dicts part by part."""
        if ast.dump(then) == ast.dump(other):
            return other
        if isinstance(then, ast.Tuple | ast.List) and type(then) is type(other) and len(then.elts) == len(other.elts):
            parts = [self.choose(test, *pair) for pair in zip(then.elts, other.elts, strict=True)]
            return type(then)(parts, ast.Load())
        if isinstance(then, ast.Dict) and isinstance(other, ast.Dict) and _keys(then) == _keys(other):
            return ast.Dict(list(then.keys), [self.choose(test, *pair)
                                              for pair in zip(then.values, other.values, strict=True)])
        return where(copy.deepcopy(test), then, other)

    def number(self, test: ast.expr, then: ast.expr, other: ast.expr) -> ast.expr:
        """The same for what must stay a number of Python."""
        if not self.style.number:
            return self.choose(test, then, other)
        dtype = expression({"float": "torch.float64", "int": "torch.int64", "bool": "torch.bool"}[self.style.number])
        left, right = (self._scalar(each, dtype) for each in (then, other))
        return call(".item", where(copy.deepcopy(test), left, right))

    def _scalar(self, value: ast.expr, dtype: ast.expr) -> ast.expr:
        before = self.forms.used
        form = self.forms.of(value)
        if form is not None and self.forms.used > before:
            return form
        return call("torch.as_tensor", copy.deepcopy(value), dtype=dtype)

    # ------------------------------------------------------------------ statements

    def branch(self, node: ast.If, bound: set[str], names: Mapping[str, str], outer: ast.expr | None) -> dict[str, str]:
        """Both ways of an `if`; returns names that now hold the chosen values."""
        self.branches.append(node)
        test = self.condition_name(renamed(node.test, names))
        both = test if outer is None else ast.BinOp(copy.deepcopy(outer), ast.BitAnd(), copy.deepcopy(test))
        ways: list[dict[str, str]] = []
        for body, sense in ((node.body, True), (node.orelse, False)):
            inverse = test if sense else negated(copy.deepcopy(test))
            assert inverse is not None
            way = inverse if outer is None else ast.BinOp(copy.deepcopy(outer), ast.BitAnd(), inverse)
            ways.append(self.body(body, bound, dict(names), both if sense else way, "then" if sense else "other"))
        merged = dict(names)
        for name in dict.fromkeys([*ways[0], *ways[1]]):
            then, other = ways[0].get(name, name), ways[1].get(name, name)
            if then == other:
                continue
            if name in (then, other) and name not in bound:
                if name in loaded_after(self.function, [node]):
                    raise Unsupported(f"{name} is bound on one way only")
                continue
            target = fresh(f"{name}_chosen", self.taken) if outer is not None else name
            value = self.choose(test, ast.Name(then, ast.Load()), ast.Name(other, ast.Load()))
            self.statements.append(ast.Assign([ast.Name(target, ast.Store())], value))
            merged[name] = target
        return merged

    def body(self, block: list[ast.stmt], bound: set[str], names: dict[str, str], test: ast.expr, way: str,
             ) -> dict[str, str]:
        """The statements of one way, with names of their own and writes that keep the old value elsewhere."""
        bound = set(bound)
        for statement in block:
            if isinstance(statement, ast.Pass):
                continue
            if isinstance(statement, ast.If):
                names = self.branch(statement, bound | set(names), names, test)
                bound |= set(stored([statement]))
            elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                names = self._assign(statement.targets[0], renamed(statement.value, names), names, test, way)
                bound |= set(stored([statement]))
            elif isinstance(statement, ast.AugAssign):
                loadable = copy.deepcopy(statement.target)
                loadable.ctx = ast.Load()
                value = ast.BinOp(renamed(loadable, names), statement.op, renamed(statement.value, names))
                names = self._assign(statement.target, value, names, test, way)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._in_place(renamed(statement.value, names), test)
            else:
                raise Unsupported(ast.unparse(statement).partition("\n")[0])
        return names

    def _assign(self, target: ast.expr, value: ast.expr, names: dict[str, str], test: ast.expr, way: str,
                ) -> dict[str, str]:
        if isinstance(target, ast.Name):
            name = fresh(f"{target.id}_{way}", self.taken)
            self.statements.append(ast.Assign([ast.Name(name, ast.Store())], value))
            return {**names, target.id: name}
        if isinstance(target, ast.Tuple) and all(isinstance(each, ast.Name) for each in target.elts):
            made = {name: fresh(f"{name}_{way}", self.taken) for name in stored([target])}
            self.statements.append(ast.Assign([_targets(target, made)], value))
            return {**names, **made}
        if isinstance(target, ast.Attribute | ast.Subscript):
            old = copy.deepcopy(target)
            old.ctx = ast.Load()
            place = renamed(old, names)
            assert isinstance(place, ast.Attribute | ast.Subscript)
            chosen = (self.number if isinstance(target, ast.Attribute) or self.style.number else self.choose)(
                test, value, copy.deepcopy(place))
            place = copy.deepcopy(place)
            place.ctx = ast.Store()
            self.statements.append(ast.Assign([place], chosen))
            return names
        raise Unsupported(ast.unparse(target))

    def _in_place(self, node: ast.expr, test: ast.expr) -> None:
        """`t.mul_(a).add_(b)` -> `t.copy_(torch.where(test, t.mul(a).add(b), t))`."""
        value, root = _without_writes(node)
        if root is None:
            raise Unsupported(ast.unparse(node))
        self.statements.append(ast.Expr(call(".copy_", copy.deepcopy(root),
                                             where(copy.deepcopy(test), value, copy.deepcopy(root)))))


def _keys(node: ast.Dict) -> list[str]:
    return [ast.dump(key) if key else "" for key in node.keys]


def _targets(target: ast.Tuple, names: Mapping[str, str]) -> ast.Tuple:
    return ast.Tuple([ast.Name(names[each.id], ast.Store()) for each in target.elts if isinstance(each, ast.Name)],
                     ast.Store())


def _without_writes(node: ast.expr) -> tuple[ast.expr, ast.expr | None]:
    """A chain of in-place methods as one of plain ones, and the tensor that it writes to."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_")
            and not node.func.attr.endswith("__")):
        return copy.deepcopy(node), None
    base, root = _without_writes(node.func.value)
    root = base if root is None else root
    plain = NEW_VALUE.get(node.func.attr, None)
    if plain is None:
        return ast.Call(ast.Attribute(base, node.func.attr[:-1], ast.Load()), node.args, node.keywords), root
    if plain:
        return call(plain, base, *node.args), root
    return node.args[0], root


# ---------------------------------------------------------------------- whole statements


def prepared(site: Site, style: Style) -> tuple[Choices, dict[str, tuple[ast.Assign, ast.expr]]]:
    assert site.function is not None
    numbers = tensors_of_numbers(site.function, site.types, style.double)
    forms = Forms({name: ast.Name(f"{name}_tensor", ast.Load()) for name in numbers}, site.types, style.double)
    return Choices(site, site.function, style, all_names(site.function), forms), numbers


def number_edits(site: Site, numbers: Mapping[str, tuple[ast.Assign, ast.expr]], used: set[str],
                 ) -> list[tuple[ast.Assign, list[ast.stmt]]]:
    """New definitions of numbers whose tensors are used: the tensor first, then the number."""
    found: list[tuple[ast.Assign, list[ast.stmt]]] = []
    todo = [name for name in numbers if f"{name}_tensor" in used]
    done: set[str] = set()
    while todo:
        name = todo.pop()
        if name in done:
            continue
        done.add(name)
        assignment, form = numbers[name]
        tensor: list[ast.stmt] = [ast.Assign([ast.Name(f"{name}_tensor", ast.Store())], form)]
        assert site.function is not None
        tensor.append(ast.Assign(assignment.targets, call(".item", ast.Name(f"{name}_tensor", ast.Load()))))
        found.append((assignment, tensor))
        todo += [other for other in numbers if f"{other}_tensor" in loaded([form])]
    return found


def edits_for(site: Site, old: list[ast.stmt], new: list[ast.stmt],
              numbers: Mapping[str, tuple[ast.Assign, ast.expr]]) -> tuple[Edit, ...]:
    """Replace statements, and define the tensors that the new ones use."""
    changes = number_edits(site, numbers, loaded(new))
    edits = [site.replace(old, new)]
    for assignment, statements in changes:
        if any(assignment is each for each in old):
            raise Unsupported("the number is defined in the same statement")
        edits.append(site.replace([assignment], statements))
    return tuple(edits)


STYLES = (Style(), Style(double=False), Style(number="float"), Style(number="int"), Style(number="bool"))


@remedy("SB002", "SB003", RECOMPILE, rank=1)
def choose_with_where(site: Site) -> Iterator[Candidate]:
    """An `if` statement around the line."""
    for place in site.places:
        statement = place.statement
        if isinstance(statement, ast.If):
            for style in STYLES:
                try:
                    yield from _statement(site, place.block, place.index, style)
                except Unsupported:
                    continue


def _statement(site: Site, block: list[ast.stmt], index: int, style: Style) -> Iterator[Candidate]:
    assert site.function is not None
    node = block[index]
    assert isinstance(node, ast.If)
    choices, numbers = prepared(site, style)
    title = "choose between values with torch.where"
    if _returns(node.body):
        rest = node.orelse or block[index + 1:]
        if block is not site.function.body or not _returns(rest):
            return
        early = _straight(choices, node.body, "early")
        choices.statements = [*early[:-1]]
        value = _returned(early[-1])
        test = choices.condition_name(node.test)
        choices.branches.append(node)
        ending = _straight(choices, rest, "late")
        choices.statements += ending[:-1]
        result = choices.number(test, value, _returned(ending[-1]))
        new = [*choices.statements, ast.Return(result)]
        old = block[index:index + 1] if node.orelse else block[index:]
    else:
        bound = bound_before(site.function, node)
        choices.branch(node, bound, {}, None)
        new, old = choices.statements, block[index:index + 1]
    yield Candidate(title, edits_for(site, old, new, numbers), branches=tuple(choices.branches))


def _returns(block: list[ast.stmt]) -> bool:
    """Whether a block is straight code that ends with a return."""
    return bool(block) and isinstance(block[-1], ast.Return) and block[-1].value is not None and all(
        isinstance(each, ast.Assign | ast.Expr | ast.AugAssign) for each in block[:-1])


def _straight(choices: Choices, block: list[ast.stmt], way: str) -> list[ast.stmt]:
    """A block that ends with a return, with names of its own; nothing in it may write to memory."""
    names: dict[str, str] = {}
    made: list[ast.stmt] = []
    for each in block[:-1]:
        if isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name):
            name = fresh(f"{each.targets[0].id}_{way}", choices.taken)
            made.append(ast.Assign([ast.Name(name, ast.Store())], renamed(each.value, names)))
            names[each.targets[0].id] = name
        else:
            raise Unsupported(ast.unparse(each))
    ending = block[-1]
    assert isinstance(ending, ast.Return) and ending.value is not None
    return [*made, ast.Return(renamed(ending.value, names))]


def _returned(ending: ast.stmt) -> ast.expr:
    assert isinstance(ending, ast.Return) and ending.value is not None
    return ending.value


@remedy("SB002", "SB003", RECOMPILE, rank=1)
def choose_in_expressions(site: Site) -> Iterator[Candidate]:
    """Conditional expressions, `and`, `or`, `not`, min() and max() inside the statement of the line."""
    if not site.places or site.function is None:
        return
    statement = site.places[0].statement
    if isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try):
        return
    for style in STYLES[:3]:
        choices, numbers = prepared(site, style)
        transformer = _Expressions(choices)
        try:
            made = transformer.visit(copy.deepcopy(statement))
            if transformer.changed:
                yield Candidate("compute both ways, and choose", edits_for(site, [statement], [made], numbers),
                                branches=tuple(choices.branches))
        except Unsupported:
            continue


class _Expressions(ast.NodeTransformer):
    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.changed = False

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:  # noqa: N802
        original = copy.deepcopy(node)
        self.generic_visit(node)
        self.changed = True
        self.choices.branches.append(original)
        return self.choices.number(self.choices.condition_of(node.test), node.body, node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:  # noqa: N802
        self.changed = True
        return self.choices.condition_of(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:  # noqa: N802
        if not isinstance(node.op, ast.Not):
            self.generic_visit(node)
            return node
        self.changed = True
        return self.choices.condition_of(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:  # noqa: N802
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max") and len(node.args) > 1:
            made = self.choices.forms.of(node)
            if made is not None:
                self.changed = True
                return made
        self.generic_visit(node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:  # noqa: N802
        return node
