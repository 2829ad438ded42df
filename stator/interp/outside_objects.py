"""Which objects without a shadow come from outside the trace: functions, classes, modules, enum members."""

from __future__ import annotations

import enum
import types

import torch

from stator.host.value_kinds import is_a
from stator.interp.services import VM


def is_outside(vm: VM, obj: object) -> bool:
    """Whether an object without a shadow comes from outside the trace."""
    if is_a(obj, (type, types.FunctionType, types.ModuleType, torch._ops.OpOverloadPacket, torch._ops.OperatorBase)):
        return id(obj) not in vm.fresh
    return is_a(obj, enum.Enum) and is_known_member(vm, obj) or id(obj) in vm.heap.by_standin \
        or is_a(obj, (classmethod, staticmethod)) and id(obj) in vm.heap.sources


def is_known_member(vm: VM, member: object) -> bool:
    """Whether an enum member existed before the trace (a flag may be put together during it)."""
    cls = type(member)
    if id(cls) in vm.fresh:
        return False
    names = cls.__dict__.get("_member_map_", {}), cls.__dict__.get("_value2member_map_", {})
    return any(member is known for members in names for known in members.values())
