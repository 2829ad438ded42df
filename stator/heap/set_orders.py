"""Order of a set that hashes of strings decide.   {"a", "b"}  ->  size of its table, members in their order

In: a set of the trace.  Out: a record from which another process, whose strings have other hashes, decides whether its
set has the same order.  Where the members were only added, it adds them in turn.  Otherwise: CPython puts a member into
the slot that its hash names, or into a later one where that is taken, and sizes of tables depend on the operations
alone.  So where no two members share a slot, and none was removed, the slots give the order.
"""

from __future__ import annotations

from dataclasses import dataclass

from stator import _core
from stator.heap.raw_access import raw_members

_HASHED_IN_C = (str, bytes, int, float, bool, complex)


@dataclass(frozen=True)
class SetOrder:
    """`mask`: slots of the table less one; None where another process must have the same hashes."""

    mask: int | None
    members: tuple[object, ...] = ()
    is_read: bool = True  # False: a set with these members is made, and none was read
    added: tuple[object, ...] = ()  # the members in the order of their additions, where nothing else has happened

    def holds(self) -> bool:
        """Whether the sets of this process have this order."""
        if self.mask is None:
            return False
        if self.added and self.is_read:
            return (*set(self.added),) == self.members
        slots = [hash(each) & self.mask for each in self.members]
        return len(set(slots)) == len(slots) and (not self.is_read or slots == sorted(slots))


def order_of(value: set[object] | frozenset[object], is_read: bool, added: tuple[object, ...]) -> SetOrder:
    mask, _, slots = _core.set_layout(value)
    members = tuple(raw_members(value))
    known = len(slots) == len(members) and all(map(_is_hashed_in_c, members))
    return SetOrder(mask, members, is_read, added) if known else SetOrder(None)


def _is_hashed_in_c(value: object) -> bool:
    return all(map(_is_hashed_in_c, value)) if type(value) is tuple else type(value) in _HASHED_IN_C
