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
from stator.heap.tracker import ShadowKind
from stator.host.value_kinds import dict_of_class, mro_of
from stator.interp.mechanisms import fingerprints
from stator.interp.services import VM

_STORES = frozenset({operator.setitem, operator.delitem, dict.__setitem__, dict.setdefault, dict.pop,
                     dict.__delitem__, set.add, set.remove, set.discard})
_PURE = (enum.Enum.__hash__, torch.Tensor.__hash__)


def check_hashes(vm: VM, members: Iterable[object]) -> None:
    asked = [member for member in members if runs_python(member)]
    if not asked:
        return
    effects = f"a dict or a set that hashes a {type(asked[0]).__name__}, whose __hash__ has effects"
    if Strategy.HASHES in vm.turned_off:
        raise Break("SB006", effects)
    before = fingerprints(vm)
    for member in asked:
        vm.native(hash, (member,))
    if fingerprints(vm) != before:
        raise Break("SB006", effects, turn_off=Strategy.HASHES)


def check_written(vm: VM, fn: object, args: tuple[object, ...]) -> None:
    """The residual hashes a key that the program puts into an outside dict or set again."""
    tracker = vm.heap.by_standin.get(id(args[0])) if fn in _STORES and runs_python(args[1]) else None
    if tracker is not None and (tracker.initial is not None or tracker.shape is not ShadowKind.DICT):  # filled by now
        check_hashes(vm, args[1:2])


def runs_python(member: object) -> bool:
    cls = type(member)
    if cls in CONSTANT_TYPES:
        return False
    if cls is tuple or cls is frozenset:
        return any(map(runs_python, member))  # type: ignore[call-overload]
    own = next((vars_of["__hash__"] for vars_of in map(dict_of_class, mro_of(cls)) if "__hash__" in vars_of), None)
    return type(own) is types.FunctionType and own not in _PURE
