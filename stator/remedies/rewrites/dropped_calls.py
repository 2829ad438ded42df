"""Calls that exist to break the graph.   stator.graph_break()  ->  nothing

In: a statement that is such a call.  Out: the function without it; in eager it does nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stator.remedies.registry import Candidate, Site, remedy


@remedy("SB009", "SB023", rank=0)
def remove_the_call(site: Site) -> Iterator[Candidate]:
    """The whole statement of the line."""
    if site.places and isinstance(site.places[0].statement, ast.Expr):
        place = site.places[0]
        yield Candidate("remove the call", (site.replace([place.statement],
                                                         [ast.Pass()] if len(place.block) == 1 else []),))
