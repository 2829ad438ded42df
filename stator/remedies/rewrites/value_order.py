"""Sorts of Python on numbers out of tensors.   sorted(x.tolist())  ->  torch.sort(x).values.tolist()

In: sorted() of the numbers of a tensor, or of positions by those numbers.  Out: torch's stable sort.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from stator.remedies.registry import Candidate, Site, remedy
from stator.remedies.rewrites.tensor_forms import call, function_name, is_item


@remedy("SB003", "SB002", "SB001", rank=4)
def sort_with_torch(site: Site) -> Iterator[Candidate]:
    """sorted() in the statement of the line."""
    if not site.places:
        return
    statement = site.places[0].statement
    transformer = _Sorts()
    made = transformer.visit(copy.deepcopy(statement))
    if transformer.changed and not isinstance(statement, ast.For | ast.If | ast.While | ast.With | ast.Try):
        yield Candidate("sort with torch", (site.replace([statement], [made]),),
                        note="NaN has another place in torch's order than in Python's")


class _Sorts(ast.NodeTransformer):
    changed = False

    def visit_Call(self, node: ast.Call) -> ast.expr:  # noqa: N802
        self.generic_visit(node)
        if function_name(node.func) != "sorted" or len(node.args) != 1:
            return node
        words = {each.arg: each.value for each in node.keywords}
        if not words.keys() <= {"key", "reverse"}:
            return node
        [items], key = node.args, words.get("key")
        descending = {"descending": words["reverse"]} if "reverse" in words else {}
        stable = ast.Constant(True)
        if key is None and isinstance(items, ast.Call) and isinstance(items.func, ast.Attribute) \
                and items.func.attr == "tolist":
            self.changed = True
            made = call("torch.sort", items.func.value, stable=stable, **descending)
            return call(".tolist", ast.Attribute(made, "values", ast.Load()))
        tensor = _sorted_by(items, key)
        if tensor is None:
            return node
        self.changed = True
        return call(".tolist", call("torch.argsort", tensor, stable=stable, **descending))


def _sorted_by(items: ast.expr, key: ast.expr | None) -> ast.expr | None:
    """The tensor of `sorted(range(n), key=lambda i: t[i].item())`, for n its length."""
    if not (isinstance(items, ast.Call) and function_name(items.func) == "range" and len(items.args) == 1
            and isinstance(key, ast.Lambda) and len(key.args.args) == 1):
        return None
    body = key.body
    if is_item(body):
        assert isinstance(body, ast.Call) and isinstance(body.func, ast.Attribute)
        body = body.func.value
    elif isinstance(body, ast.Call) and function_name(body.func) in ("float", "int") and len(body.args) == 1:
        [body] = body.args
    if isinstance(body, ast.Subscript) and isinstance(body.slice, ast.Name) \
            and body.slice.id == key.args.args[0].arg and isinstance(body.value, ast.Name):
        lengths = {f"len({body.value.id})", f"{body.value.id}.shape[0]", f"{body.value.id}.size(0)",
                   f"{body.value.id}.numel()"}
        return body.value if ast.unparse(items.args[0]) in lengths else None
    return None
