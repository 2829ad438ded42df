"""Evaluate sources, and check and explain guards, one at a time.

In: a source or a guard, and the bound arguments of a call.  Out: the value (`evaluate`), whether the fact holds
(`check`), or the old and the new value (`explain`).  tests/unit/guards/plain_semantics.py is the specification.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stator import _core
from stator.guards.global_state import GlobalState, global_state
from stator.guards.guard import MISSING, TORCH_CONSTANTS, Guard, Kind, Where
from stator.guards.lower import lower
from stator.guards.partition import NoAddress, Partition
from stator.guards.shape_check import ShapeCheck
from stator.guards.tensor_meta import TensorMeta, TensorValues, tensor_meta, tensor_values
from stator.host.suspended_patches import names_of_class, restored
from stator.host.value_kinds import BUILTIN_METHOD, is_a, mro_of
from stator.source import Source, name_of, parents

# Attr reads C-level attributes of exactly these types; torch tensors answer `grad` and `_base` besides.
TRUSTED_TYPES: frozenset[type] = frozenset({
    types.FunctionType, types.MethodType, types.BuiltinFunctionType, BUILTIN_METHOD, types.CodeType, types.CellType,
    types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.GenericAlias, types.UnionType, functools.partial,
    property, staticmethod, classmethod, super, slice, range, complex, int, float, deque, memoryview})


class Unreadable(LookupError):
    """The source leads nowhere for these arguments: a missing key, another type on the way."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a guard does not hold: the fact, what is there now, and the user's line that relied on it."""

    text: str
    expected: str
    found: str
    where: Where | None

    def __str__(self) -> str:
        line = f" ({self.where[2]} at {self.where[0]}:{self.where[1]})" if self.where else ""
        return f"{self.text}; now {self.found}{line}"


def evaluate(source: Source, bound_args: Sequence[Any]) -> Any:
    """The value a source leads to; Unreadable, with the step that cannot be made, when it leads nowhere."""
    found = _program_values((), (source,), bound_args)
    if found is None:
        for parent in parents(source):
            evaluate(parent, bound_args)
        raise Unreadable(source.text())
    return found[0]


def failing(guards: Sequence[Guard], bound_args: Sequence[Any]) -> list[Guard]:
    """Guards that do not hold, by halves: most hold."""
    if not guards or _program_values(guards, (), bound_args) is not None:
        return []
    half = len(guards) // 2
    return list(guards) if not half else [*failing(guards[:half], bound_args), *failing(guards[half:], bound_args)]


def _program_values(guards: Sequence[Guard], wanted: Sequence[Source],
                    bound_args: Sequence[Any]) -> tuple[Any, ...] | None:
    """The values that a program of these guards gives; None where one does not hold or a value cannot be read."""
    try:
        lowered = lower(guards, wanted)
    except ValueError:  # a class has something else in the place of a slot by now
        return None
    program = _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, len(bound_args))
    with restored():
        return program.values(tuple(bound_args))  # type: ignore[no-any-return]


def explain(guard: Guard, bound_args: Sequence[Any]) -> Failure | None:
    """None when the guard holds; else the old value and the new one, as text."""
    if not failing((guard,), bound_args):
        return None
    if guard.kind is Kind.GLOBAL_STATE:
        changed = guard.value.differences(global_state())
        # Stator itself turns functions off while it looks.
        changed = [each for each in changed if each[0] != "torch_function_disabled"] or changed
        expected = "; ".join(f"{name}={old}" for name, old, _ in changed)
        return Failure(guard.text(), expected, "; ".join(f"{n}={new}" for n, _, new in changed), guard.where)
    text = guard.text()
    try:
        if guard.kind is Kind.PARTITION:
            text, found = _changed_relation(guard, bound_args)
        else:
            found = _describe(guard, evaluate(guard.source, bound_args), bound_args)
    except Unreadable as gone:
        found = f"{gone} is gone"
    return Failure(text, _expected_text(guard), found, guard.where)


def _changed_relation(guard: Guard, bound_args: Sequence[Any]) -> tuple[str, str]:
    """Two places that shared an address, or did not, and how they are now."""
    values = [evaluate(place.source, bound_args) for place in guard.value.places]
    try:
        return guard.value.difference(values) or (guard.text(), "otherwise")
    except NoAddress as error:
        return guard.text(), str(error)


def raw_length(value: Any) -> int | None:
    """The length as C has it, without the user's `__len__`; None for what has none."""
    return next((kind.__len__(value) for kind in (list, tuple, dict, set, frozenset, deque) if is_a(value, kind)), None)


def type_attribute(cls: type, name: str) -> Any:
    """Entry of a name in the MRO, as `_PyType_Lookup` finds it, or MISSING."""
    for owner in mro_of(cls):
        own = names_of_class(owner)
        if name in own:
            return own[name]
    return MISSING


def type_field(cls: type, name: str) -> Any:
    """Field of a class (`__mro__`, `__bases__`, its names), past what its metaclass defines."""
    return type.__dict__[name].__get__(cls) if is_a(cls, type) else MISSING


def _expected_text(guard: Guard) -> str:
    value = guard.value
    if is_a(value, (TensorMeta, TensorValues, GlobalState, Source, ShapeCheck, Partition)):
        return value.text()
    return _shown(value[1] if guard.kind in (Kind.TYPE_ATTR, Kind.TYPE_FIELD) else value)


def _shown(value: object) -> str:
    if is_a(value, torch.Tensor):
        return tensor_meta(value).text()
    return repr(value) if type(value) in TORCH_CONSTANTS else name_of(value)


def _describe(guard: Guard, value: Any, bound_args: Sequence[Any]) -> str:
    """The value that is there now, in the terms of the kind of guard that failed."""
    match guard.kind:
        case Kind.TYPE:
            return name_of(type(value))
        case Kind.TENSOR if is_a(value, torch.Tensor):
            return tensor_meta(value).text()
        case Kind.VALUES if is_a(value, torch.Tensor):
            return tensor_values(value).text()
        case Kind.LEN:
            return f"length {raw_length(value)}"
        case Kind.KEYS if is_a(value, dict):
            keys = (OrderedDict if is_a(value, OrderedDict) else dict).__iter__(value)
            return f"keys [{', '.join(map(name_of, keys))}]"
        case Kind.TYPE_ATTR:
            return name_of(type_attribute(value, guard.value[0]))
        case Kind.TYPE_FIELD:
            return name_of(type_field(value, guard.value[0]))
        case Kind.SET_EQUALS if is_a(value, (set, frozenset)):
            members = (set if is_a(value, set) else frozenset).__iter__(value)
            return "{" + ", ".join(sorted(map(name_of, members))) + "}"
        case Kind.ABSENT:
            return "present"
        case Kind.PRESENT:
            return "absent"
        case Kind.SHAPE:
            found = [(o.text(), o.of(evaluate(o.source, bound_args))) for o in guard.value.operands]
            return ", ".join(f"{text} is {number}" for text, number in found)
        case Kind.ALIAS:
            return "two objects"
        case Kind.NOT_ALIAS:
            return "one object"
    return _shown(value)
