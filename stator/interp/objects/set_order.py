"""The order in which the trace has filled a set.   s = {a}; s.add(b)  ->  [a, b]

Objects from outside that hash by address lie elsewhere in the table of the trace than in that of eager.  Additions are
noted by id; the residual adds the members again in that order, and CPython lays its table out as in eager.  A set whose
history is more than additions has an unknown order: its order is not read in the trace, and it does not leave.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import cast

import torch

from stator import _core
from stator.breaks import Break
from stator.heap.adopt.outside_sets import CHANGING, note_operation
from stator.heap.pure_readers import BOUND, hashed_parts
from stator.heap.raw_access import CONSTANT_TYPES, raw_members
from stator.heap.tracker import referring
from stator.host.value_kinds import is_a
from stator.interp.key_effects import WithHash, known_hashes, runs_python
from stator.interp.services import VM

_Items = Sequence[object]
_Set = set[object] | frozenset[object]
_REMOVED = -1  # the hash in a slot whose member was removed
_SMALLEST = 7  # mask of the table of an empty set
_NUMBERS = (int, float, bool, complex)
_SETS = (set, frozenset)
_SEQUENCES = (list, tuple)
_C_CODE = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_BY_ADDRESS = (object.__hash__, torch.Tensor.__hash__)


def note_set(vm: VM, fn: Callable[..., object], args: tuple[object, ...], result: object) -> None:
    """C code has run: note its operation on a set."""
    if vm.heap.tables.sets:
        note_operation(vm.heap, fn, args, failed=False)
    if any(fn is cls for cls in _SETS):
        if not args or type(args[0]) in _SEQUENCES:
            _begin(vm, result)
            _note(vm, cast(_Set, result), cast(_Items, args[0]) if args else ())
    elif type(fn) is types.BuiltinMethodType and is_a(fn.__self__, set):
        _method_called(vm, fn.__name__, cast(_Set, fn.__self__), args)
    elif args and is_a(args[0], set) and type(fn) in _C_CODE:
        _method_called(vm, fn.__name__, cast(_Set, args[0]), args[1:])


def _method_called(vm: VM, name: str, target: _Set, args: _Items) -> None:
    known = _known(vm, target)
    if name == "__init__" or name == "add" and known is None and _core.set_layout(target)[0] == _SMALLEST \
            and len(_core.set_layout(target)[2]) == 1:
        _begin(vm, target)
    if name == "add" or name in ("update", "__init__") and len(args) == 1 and type(args[0]) in _SEQUENCES:
        _note(vm, target, args if name == "add" else cast(_Items, args[0]))
    elif name in CHANGING:
        vm.identity.additions.pop(id(target), None)


def _known(vm: VM, target: object) -> dict[int, None] | None:
    refer, noted = vm.identity.additions.get(id(target), (None, None))
    return noted if refer is not None and refer() is target else None


def _begin(vm: VM, target: object) -> None:
    vm.identity.additions[id(target)] = referring(target), {}


def _note(vm: VM, target: _Set, items: _Items) -> None:
    known = _known(vm, target)
    if known is not None and len(target) > len(known):
        members = set(map(id, raw_members(target))) if len(items) > 1 else ()
        known.update((id(item), None) for item in items if len(items) == 1 or id(item) in members)


def lies_elsewhere(vm: VM, item: object) -> bool:
    """Whether a member hashes by the address of an object from outside, for which the trace has a stand-in."""
    if type(item) in CONSTANT_TYPES:
        return False
    if (parts := hashed_parts(item)) is not None:
        return any(lies_elsewhere(vm, part) for part in parts)
    if type(item) in BOUND:
        return vm.heap.tracker_of(item.__self__) is not None  # type: ignore[attr-defined]
    return type(item).__hash__ in _BY_ADDRESS and vm.heap.tracker_of(item) is not None


def members_as_added(vm: VM, value: object) -> list[object] | None:
    """Members in the order of their additions, where eager or another process may have another table; else None."""
    members = {id(item): item for item in raw_members(value)}
    if len(members) < 2 or all(type(item) in _NUMBERS for item in members.values()):
        return None
    if not any(lies_elsewhere(vm, item) for item in members.values()):
        if any(map(runs_python, members.values())):  # made anew by the hashes that they had
            return None
        return [*additions_of(vm, value)] or None
    if not is_order_known(vm, value):
        raise Break("SB013", "the order of a set made inside, of objects that hash by address", whole_call=True)
    if any(map(runs_python, members.values())):
        raise Break("SB006", "a set made inside, of objects of which only some hash by address", whole_call=True)
    return [members[number] for number in vm.identity.additions[id(value)][1]]


def additions_of(vm: VM, value: object) -> tuple[object, ...]:
    """Members in the order of their additions, which make this table of an empty one; nothing where they do not."""
    if not is_order_known(vm, value):
        return ()
    members = {id(item): item for item in raw_members(value)}
    added = tuple([members[number] for number in vm.identity.additions[id(value)][1]])
    hashes = known_hashes(value)
    repeated = {WithHash(hashes[id(item)]) for item in added}
    return added if _core.set_layout(repeated) == _core.set_layout(value) else ()


def is_order_known(vm: VM, value: object) -> bool:
    known = _known(vm, value)
    return known is not None and known.keys() == set(map(id, raw_members(value))) \
        and all(number != _REMOVED for _, number in _core.set_layout(value)[2])
