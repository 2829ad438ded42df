"""Arithmetic on `.item()` as arithmetic on tensors.   math.exp(t.item())  ->  torch.exp(t.double()).item()

In: a statement that computes with numbers out of tensors.  Out: the same with the largest such expressions computed by
tensors in float64, and read at their end: the type of every value stays.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from stator.remedies.registry import RECOMPILE, Candidate, Site, remedy
from stator.remedies.rewrites.branches import STYLES, Unsupported, edits_for, prepared
from stator.remedies.rewrites.tensor_forms import Forms, call, is_item

ERRORS = "functions of math raise for numbers outside their domain or range, where torch's give nan or inf"
TITLES = {True: "compute with tensors, and read the number at the end", False: "keep the number in a tensor"}


@remedy("SB003", "SB002", RECOMPILE, rank=3)
def compute_with_tensors(site: Site) -> Iterator[Candidate]:
    """The statement of the line, and then all later ones that use the same numbers."""
    if not site.places or site.function is None:
        return
    statement = site.places[0].statement
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Return | ast.Expr | ast.AnnAssign):
        return
    for read in (True, False):
        for style in STYLES[:2]:
            choices, numbers = prepared(site, style)
            own = {target.id for target in getattr(statement, "targets", []) if isinstance(target, ast.Name)}
            usable = {name: value for name, value in choices.forms.numbers.items() if name not in own}
            transformer = _Numbers(Forms(usable, site.types, style.double), read)
            try:
                made = transformer.visit(copy.deepcopy(statement))
                assert isinstance(made, ast.stmt)
                if transformer.changed:
                    yield Candidate(TITLES[read], edits_for(site, [statement], [made], numbers),
                                    note=ERRORS if "math." in ast.unparse(statement) else "")
            except Unsupported:
                continue


class _Numbers(ast.NodeTransformer):
    """Replaces the largest expressions that are numbers out of tensors."""

    def __init__(self, forms: Forms, read: bool) -> None:
        self.forms, self.read = forms, read
        self.changed = False

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return node
        if isinstance(node, ast.expr) and not is_item(node) and not isinstance(node, ast.Name | ast.Constant) \
                and self.forms.is_number(node):
            before = self.forms.used
            made = self.forms.of(node)
            if made is not None and self.forms.used > before:
                self.changed = True
                return call(".item", made) if self.read else made
            return node
        if is_item(node) and not self.read:
            assert isinstance(node, ast.Call)
            made = self.forms.of(node)
            assert made is not None
            self.changed = True
            return made
        return self.generic_visit(node)
