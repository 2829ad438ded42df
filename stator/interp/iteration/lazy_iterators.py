"""C iterators that were made inside the trace, and what they run through.   zip(iter(xs), ys)  ->  xs, ys

In: a C iterator (`iter(xs)`, `reversed(xs)`, zip, chain, islice ...).  Out: the containers that it takes items from, so
that C code which runs through it finds them exposed, or the interpreter runs the loop itself.
"""

from __future__ import annotations

import collections
import gc
import itertools
from collections.abc import Iterator
from typing import Any

from stator.host.value_kinds import is_a
from stator.interp.numbers.symbolic_numbers import reaches_symbol
from stator.interp.services import VM
from stator.native.rows_declare import ROWS

_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)
_FORWARD: tuple[Any, ...] = ([], (), {}, {}.values(), {}.items(), set(), collections.deque())
_BACKWARD: tuple[Any, ...] = ([], {}, {}.values(), {}.items(), collections.deque())
C_ITERATORS: frozenset[type] = frozenset({
    *(type(iter(each)) for each in _FORWARD), *(type(reversed(each)) for each in _BACKWARD),
    reversed, enumerate, zip, map, filter, *(each for each in vars(itertools).values() if isinstance(each, type)),
})


_VIEWS = frozenset({type({}.values()), type({}.items())})


def containers_behind(value: object) -> Iterator[Any]:
    """The containers that a C iterator, and the C iterators behind it, hold on to; nothing for any other value."""
    pending, seen = [value] if type(value) in C_ITERATORS else [], set()
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        for held in gc.get_referents(each):
            if type(held) in C_ITERATORS:
                pending.append(held)
            elif is_a(held, _CONTAINERS):
                yield held
                if type(held) is tuple:  # of the iterators that zip and map take from
                    pending += [item for item in held if type(item) in C_ITERATORS]


def is_to_be_read(vm: VM, value: Any, consumer: Any) -> bool:
    """Whether running through a C iterator meets places of the user's that are unread, or numbers left open.

    The same of the values of a dict, where they are to be hashed.
    """
    by_standin = vm.heap.by_standin
    hashed = type(value) in _VIEWS and ROWS[id(consumer)].hashes_walked
    behind = gc.get_referents(value) if hashed else containers_behind(value)
    return any(id(held) in by_standin or reaches_symbol((held,), None) for held in behind)
