"""Copies that are made before the graph runs.   copy.deepcopy(self.weight)  ->  drawn = deepcopy(self_weight, memo)

In: what the trace noted in the machine's list of draws.  Out: lines of the residual.
"""

from __future__ import annotations

import copy
from typing import Any

from stator.emit.services import Rebuilder
from stator.interp.tensors.tensor_copies import Flag


def write_copies(build: Rebuilder, made: list[Any]) -> list[str]:
    """The lines that make copies and set their flags; tensors of one deepcopy() share its memo."""
    memos: dict[int, str] = {}
    lines: list[str] = []
    for each in made:
        name = build.outside(each.source)
        if type(each) is Flag:
            lines.append(f"{build.method('requires_grad_')}({name}, {each.value})")
            continue
        if each.memo not in memos:
            memos[each.memo] = build.writer.fresh("memo")
            lines.append(f"{memos[each.memo]} = {{}}")
        copier = build.writer.constant(copy.deepcopy, "deepcopy")
        lines.append(f"{name} = {copier}({build.outside(each.original)}, {memos[each.memo]})")
    return lines
