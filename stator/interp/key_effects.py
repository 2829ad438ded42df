"""Refuse outside dicts and sets whose members have a `__hash__` with effects.   def __hash__(self): self.asked += 1 ...

A stand-in is filled by hashing its keys, which the program does not do.  Without effects that is not observable.
A dict or set that was made inside is made anew with the hashes that the trace has seen.
"""

from __future__ import annotations

import enum
import operator
import types
from collections.abc import Iterable, Sequence

import torch

from stator import _core
from stator.breaks import Break, Strategy
from stator.heap.raw_access import CONSTANT_TYPES, raw_members
from stator.host.value_kinds import dict_of_class, mro_of
from stator.interp.mechanisms import fingerprints
from stator.interp.services import VM

_SMALLEST = 7  # mask of the table of a small set
_PURE = (enum.Enum.__hash__, torch.Tensor.__hash__)


def check_hashes(vm: VM, members: Iterable[object], table: object = None) -> None:
    """Break where hashing the members, or looking for them in a table, has effects."""
    asked = [member for member in members if runs_python(member)]
    if not asked:
        return
    effects = f"a dict or a set that hashes a {type(asked[0]).__name__}, whose __hash__ or __eq__ has effects"
    if Strategy.HASHES in vm.turned_off:
        raise Break("SB006", effects)
    before = fingerprints(vm)
    known: dict[object, list[object]] = {}
    for member in asked:
        if table is not None:
            vm.native(operator.contains, (table, member))
            continue
        same = known.setdefault(vm.native(hash, (member,)), [])
        for other in same:
            vm.native(operator.eq, (other, member))
        same.append(member)
    if fingerprints(vm) != before:
        raise Break("SB006", effects, turn_off=Strategy.HASHES)


def runs_python(member: object) -> bool:
    cls = type(member)
    if cls in CONSTANT_TYPES:
        return False
    if cls is tuple or cls is frozenset:
        return any(map(runs_python, member))  # type: ignore[call-overload]
    own = next((vars_of["__hash__"] for vars_of in map(dict_of_class, mro_of(cls)) if "__hash__" in vars_of), None)
    return type(own) is types.FunctionType and own not in _PURE


def known_hashes(table: object) -> dict[int, int]:
    """The hashes in a table, by the id of the member; no member is hashed."""
    members = set(dict.copy(table)) if isinstance(table, dict) else table
    hashes = [value for _, value in _core.set_layout(members)[2] if value != -1]
    return dict(zip(map(id, raw_members(members)), hashes, strict=True))


def dict_with_hashes(hashes: Sequence[int], keys: Sequence[object], values: Sequence[object]) -> dict[object, object]:
    """A dict whose keys are not hashed: it takes over the hashes of sets of one member."""
    made: dict[object, object] = {}
    for value, key, item in zip(hashes, keys, values, strict=True):
        layout = _SMALLEST, 0, ((value & _SMALLEST, value),)
        made.update(dict.fromkeys(_core.fill_set(set, layout, [key], (0,)), item))
    return made


class WithHash:
    """A member of which only the hash counts."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        return self.value
