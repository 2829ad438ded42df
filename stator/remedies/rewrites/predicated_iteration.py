"""`continue` on a tensor as a choice.   if t > 0: continue; x = a   ->   x = torch.where(t > 0, x, a)

In: an `if` on data in a loop whose body is `continue`.  Out: the rest of the loop body with choices.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stator.remedies.registry import RECOMPILE, Candidate, Site, remedy
from stator.remedies.rewrites.branches import STYLES, Unsupported, edits_for, prepared
from stator.remedies.rewrites.local_names import bound_before


@remedy("SB002", "SB003", RECOMPILE, rank=2)
def choose_instead_of_continue(site: Site) -> Iterator[Candidate]:
    """The rest of the body takes place where the test is false."""
    for place in site.places:
        node, rest = place.statement, place.block[place.index + 1:]
        if not isinstance(node, ast.If) or len(node.body) != 1 or not isinstance(node.body[0], ast.Continue) \
                or node.orelse or not rest or site.function is None:
            continue
        for style in STYLES[:2]:
            choices, numbers = prepared(site, style)
            inverse = ast.If(node.test, [ast.Pass()], rest)
            try:
                choices.branch(inverse, bound_before(site.function, node), {}, None)
                edits = edits_for(site, [node, *rest], choices.statements, numbers)
            except Unsupported:
                continue
            yield Candidate("compute the rest of the loop body, and choose", edits, branches=(node,))
