"""Values that change from call to call, handed around unread.   a str argument, seen with nine values  ->  Varying

In: a value from outside whose place the policy has given up guarding.  Out: a stand-in of which only the Python type
is known. The program may pass it on, store, return and print it; an instruction that looks at it breaks, runs
natively on the real object, and what it gives is captured again.
"""

from __future__ import annotations

import collections
import types
from typing import Any

import numpy


class Varying:
    """The stand-in; each Python type has a subclass of its own, so that a class says all that is known."""

    __slots__ = ()
    python_type: type = object


_ITERATORS: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter(range(0))), type(iter(range(1 << 70))), type(iter({})),
    type(iter({}.values())), type(iter({}.items())), type(iter(set())), type(reversed([])), enumerate, zip)
_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict, range,
               type({}.keys()), type({}.values()), type({}.items()))
_PLAIN = (str, bytes, types.FunctionType, types.BuiltinFunctionType, types.MethodType,
          *{cls for cls in numpy.sctypeDict.values() if numpy.dtype(cls).kind in "biufc"})
COLLECTIONS = frozenset(_ITERATORS + _CONTAINERS)
STANDINS: dict[type, type[Varying]] = {
    cls: type(f"Varying_{cls.__name__}", (Varying,), {"__slots__": (), "python_type": cls})
    for cls in (*_PLAIN, *_CONTAINERS, *_ITERATORS)
}


class GraphScalar(Varying):
    """A numpy scalar whose value is a tensor of the graph: what numpy makes of `x.numpy().sum()`."""

    __slots__ = ("tensor",)
    tensor: Any  # the fake one, of no dimensions


HELD: dict[type, type[GraphScalar]] = {
    cls: type(f"Held_{cls.__name__}", (GraphScalar,), {"__slots__": (), "python_type": cls})
    for cls in {cls for cls in numpy.sctypeDict.values() if numpy.dtype(cls).kind in "biufc"}
}
HELD_TYPES = frozenset(HELD.values())


def varying(value: object) -> Varying:
    """A stand-in for a value of one of the types in STANDINS."""
    return STANDINS[type(value)]()
