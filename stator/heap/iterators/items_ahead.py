"""C iterators that have taken items which they have yet to yield.   pairwise([1, 2, 3]) after one step  ->  [2], [3]

In: a pairwise, or one of the iterators that itertools.tee makes.  Out: what it holds, what it draws from, and whether
nobody else can draw from that.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

from stator import _hook
from stator.heap.pure_readers import reduced

_TEE: type = type(itertools.tee([])[0])
TEE_DATA: type = type(reduced(itertools.tee([])[0])[2][0])
AHEAD: frozenset[type] = frozenset({itertools.pairwise, _TEE})


def ahead_of(iterator: object) -> tuple[list[Any], Any, bool]:
    """The items it holds, the iterator that it takes more from (None at its end), and whether that is its alone."""
    if type(iterator) is itertools.pairwise:
        parts = _hook.pairwise_parts(iterator)
        if not parts:
            return [], None, True
        alone = sys.getrefcount(parts[0]) == 3  # held by it, by the parts, and as an argument
        return list(parts[1:]), parts[0], alone
    data, index = reduced(iterator)[2]
    held: list[Any] = []
    count = 1  # of the blocks of items, each of which holds the iterator
    while (block := reduced(data)[1])[2] is not None:
        held += block[1]
        data, count = block[2], count + 1
    held += block[1]
    alone = sys.getrefcount(block[0]) == count + 2
    return held[index:], block[0], alone
