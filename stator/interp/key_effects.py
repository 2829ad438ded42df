"""Refuse outside dicts and sets whose members have a `__hash__` with effects.   def __hash__(self): self.asked += 1 ...

A stand-in is filled by hashing its keys, which the program does not do.  Without effects that is not observable.
"""

from __future__ import annotations

import enum
import operator
import types
from collections.abc import Iterable

import torch

from stator.breaks import Break, Strategy
from stator.heap.raw_access import CONSTANT_TYPES
from stator.host.value_kinds import dict_of_class, mro_of
from stator.interp.mechanisms import fingerprints
from stator.interp.services import VM

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
