"""Expressions on Python numbers as expressions on tensors.   math.exp(loss.item())  ->  torch.exp(loss.double())

In: an expression of a program and the tensors behind its numbers.  Out: an expression with the same value as a tensor
of no dimensions, or None where a part has no such form.  Python computes with doubles, and so does the form.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

NUMBERS = (int, float, bool)
SAME_NAME = frozenset("sqrt exp log log2 log10 log1p expm1 sin cos tan tanh sinh cosh asin acos atan atan2 pow erf "
                      "erfc isnan isinf isfinite hypot fmod copysign".split())
WHOLE = frozenset(("ceil", "floor", "trunc"))
BOOLEAN_METHODS = frozenset("any all isnan isinf isfinite eq ne lt le gt ge logical_and logical_or logical_not "
                            "is_nonzero equal".split())


def call(function: str, *arguments: ast.expr, **keywords: ast.expr) -> ast.Call:
    """`torch.where(a, b, c)`; a name that begins with a dot is a method of the first argument."""
    words = [ast.keyword(name, value) for name, value in keywords.items()]
    if function.startswith("."):
        first = arguments[0]
        return ast.Call(ast.Attribute(first, function[1:], ast.Load()), list(arguments[1:]), words)
    return ast.Call(expression(function), list(arguments), words)


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def where(condition: ast.expr, then: ast.expr, other: ast.expr) -> ast.Call:
    return call("torch.where", condition, then, other)


def is_math(node: ast.expr, names: frozenset[str]) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("math", "np") \
        and node.attr in names


def function_name(node: ast.expr) -> str:
    """The name of a called builtin, else empty."""
    return node.id if isinstance(node, ast.Name) else ""


def is_item(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item" \
        and not node.args and not node.keywords


def is_boolean(node: ast.expr) -> bool:
    """Whether an expression on tensors certainly gives booleans."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in BOOLEAN_METHODS
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        return is_boolean(node.left) and is_boolean(node.right)
    return isinstance(node, ast.Compare) or isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert)


@dataclass
class Forms:
    """Forms of expressions; `numbers` has the tensors behind names, `types` what names have held."""

    numbers: Mapping[str, ast.expr]
    types: Mapping[str, set[type]]
    double: bool = True  # compute in float64, as Python does; else in the dtype of the tensor
    used: int = field(default=0)  # places where a number became a tensor

    def of(self, node: ast.expr) -> ast.expr | None:
        """The form of an expression."""
        made = _FORMS.get(type(node), _unchanged)(self, node)
        return made

    def each(self, nodes: list[ast.expr]) -> list[ast.expr] | None:
        made = [self.of(node) for node in nodes]
        return None if any(each is None for each in made) else [each for each in made if each is not None]

    def tensor(self, node: ast.expr) -> ast.expr:
        """The tensor that `.item()` or `float()` would read."""
        self.used += 1
        return call(".double", copy.deepcopy(node)) if self.double else copy.deepcopy(node)

    def is_number(self, node: ast.expr) -> bool:
        """Whether an expression is a number of Python, or reads one from a tensor."""
        if isinstance(node, ast.Constant):
            return type(node.value) in NUMBERS
        if isinstance(node, ast.Name):
            known = self.types.get(node.id, set())
            return node.id in self.numbers or bool(known) and known <= set(NUMBERS)
        if isinstance(node, ast.BinOp):
            return self.is_number(node.left) and self.is_number(node.right)
        if isinstance(node, ast.UnaryOp):
            return self.is_number(node.operand)
        if isinstance(node, ast.Attribute):
            return is_math(node, frozenset(("pi", "e", "inf", "tau")))
        if isinstance(node, ast.Call):
            if is_item(node) or function_name(node.func) in ("float", "int"):
                return True
            named = function_name(node.func) in ("abs", "round", "min", "max", "sum", "len") or is_math(
                node.func, SAME_NAME | WHOLE | {"fabs"})
            return named and bool(node.args) and all(map(self.is_number, node.args))
        return False


Form = Callable[[Forms, ast.expr], ast.expr | None]


def _unchanged(forms: Forms, node: ast.expr) -> ast.expr:
    return copy.deepcopy(node)


def _name(forms: Forms, node: ast.expr) -> ast.expr:
    assert isinstance(node, ast.Name)
    if node.id in forms.numbers:
        forms.used += 1
        return copy.deepcopy(forms.numbers[node.id])
    return copy.deepcopy(node)


def _binary(forms: Forms, node: ast.expr) -> ast.expr | None:
    assert isinstance(node, ast.BinOp)
    left, right = forms.of(node.left), forms.of(node.right)
    return None if left is None or right is None else ast.BinOp(left, node.op, right)


def _unary(forms: Forms, node: ast.expr) -> ast.expr | None:
    assert isinstance(node, ast.UnaryOp)
    if isinstance(node.op, ast.Not):
        return negated(condition(forms, node.operand))
    operand = forms.of(node.operand)
    return None if operand is None else ast.UnaryOp(node.op, operand)


def _compare(forms: Forms, node: ast.expr) -> ast.expr | None:
    assert isinstance(node, ast.Compare)
    if any(isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) for op in node.ops):
        return copy.deepcopy(node)
    parts = forms.each([node.left, *node.comparators])
    if parts is None:
        return None
    pairs: list[ast.expr] = [ast.Compare(left, [op], [right])
                             for left, op, right in zip(parts, node.ops, parts[1:], strict=False)]
    made = pairs[0]
    for pair in pairs[1:]:
        made = ast.BinOp(made, ast.BitAnd(), pair)
    return made


def _boolean(forms: Forms, node: ast.expr) -> ast.expr | None:
    assert isinstance(node, ast.BoolOp)
    made: ast.expr | None = None
    conjunction = isinstance(node.op, ast.And)
    for value in node.values:
        each = condition(forms, value)
        if each is None:
            return None
        if made is None:
            made = each
        elif is_boolean(made) and is_boolean(each):
            made = ast.BinOp(made, ast.BitAnd() if conjunction else ast.BitOr(), each)
        else:
            made = call("torch.logical_and" if conjunction else "torch.logical_or", as_tensor(made), as_tensor(each))
    return made


def _choice(forms: Forms, node: ast.expr) -> ast.expr | None:
    assert isinstance(node, ast.IfExp)
    test, then, other = condition(forms, node.test), forms.of(node.body), forms.of(node.orelse)
    return None if test is None or then is None or other is None else where(as_tensor(test), then, other)


def _call(forms: Forms, node: ast.expr) -> ast.expr | None:
    assert isinstance(node, ast.Call)
    name = function_name(node.func)
    if is_item(node):
        assert isinstance(node.func, ast.Attribute)
        return forms.tensor(node.func.value)
    if name in ("float", "int", "bool") and len(node.args) == 1 and not node.keywords:
        [argument] = node.args
        form = forms.of(argument)
        if form is None:
            return None
        forms.used += 1
        return call({"float": ".double", "int": ".long", "bool": ".bool"}[name], form)
    if name == "abs" and len(node.args) == 1:
        form = forms.of(node.args[0])
        return None if form is None else call(".abs", form)
    if name == "round" and node.args and not node.keywords:
        form = forms.of(node.args[0])
        if form is None:
            return None
        if len(node.args) == 1:
            return call(".long", call("torch.round", form))
        return call("torch.round", form, decimals=copy.deepcopy(node.args[1]))
    if name in ("min", "max") and len(node.args) > 1 and not node.keywords:
        parts = forms.each(node.args)
        return None if parts is None else extreme(name, parts)
    if is_math(node.func, SAME_NAME | WHOLE | {"fabs"}) and not node.keywords:
        assert isinstance(node.func, ast.Attribute)
        before = forms.used
        parts = forms.each(node.args)
        if parts is None or forms.used == before:
            return copy.deepcopy(node)
        function = {"fabs": "abs"}.get(node.func.attr, node.func.attr)
        made = call(f"torch.{function}", *parts)
        return call(".long", made) if node.func.attr in WHOLE else made
    return copy.deepcopy(node)


_FORMS: dict[type[ast.AST], Form] = {ast.Name: _name, ast.BinOp: _binary, ast.UnaryOp: _unary, ast.Compare: _compare,
                                     ast.BoolOp: _boolean, ast.IfExp: _choice, ast.Call: _call}


def extreme(name: str, parts: list[ast.expr]) -> ast.expr:
    """min() and max() as Python computes them: the first of equal ones, comparisons with NaN are false."""
    made = parts[0]
    for part in parts[1:]:
        test = ast.Compare(part, [ast.Lt() if name == "min" else ast.Gt()], [made])
        made = where(test, part, made)
    return made


def as_tensor(node: ast.expr) -> ast.expr:
    """A condition as a tensor of booleans."""
    return node if is_boolean(node) else call("torch.as_tensor", node, dtype=expression("torch.bool"))


def negated(node: ast.expr | None) -> ast.expr | None:
    if node is None:
        return None
    return ast.UnaryOp(ast.Invert(), node) if is_boolean(node) else call("torch.logical_not", as_tensor(node))


def condition(forms: Forms, node: ast.expr) -> ast.expr | None:
    """The form of a test."""
    return forms.of(node)


def lifted(node: ast.expr) -> ast.expr:
    """A comparison of numbers that the graph computes, `random.random() < 0.5`, as one of tensors."""
    if isinstance(node, ast.Compare):
        node = copy.deepcopy(node)
        node.left = call("torch.as_tensor", node.left, dtype=expression("torch.float64"))
    return node
