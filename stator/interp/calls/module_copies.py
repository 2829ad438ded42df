"""C functions and types of a module that was imported afresh.   import_fresh_module("functools")._functools.reduce

In: a C callable that no row knows.  Out: whether it has got the rows, rules and loops of its original.  A C module that
is imported again has new function and type objects with the same C code.  Two modules of one definition (`PyModuleDef`)
are copies of each other; their functions and descriptors of one name are, where they hold the same pointers to C code.
"""

from __future__ import annotations

import builtins
import ctypes
import sys
import types
from collections.abc import Iterator
from dataclasses import replace

from stator import _hook
from stator.breaks import Break
from stator.interp.iteration import PLANNERS
from stator.interp.rule_registry import alias
from stator.interp.services import VM
from stator.native.rows_declare import NAMES, ROWS, c_members, is_c_type

_HEAD, _WORD = object.__basicsize__, ctypes.sizeof(ctypes.c_void_p)
_POINTERS = {types.BuiltinFunctionType: (0,), types.MethodDescriptorType: (3,), types.ClassMethodDescriptorType: (3,),
             types.GetSetDescriptorType: (3,), types.WrapperDescriptorType: (3, 4), types.MemberDescriptorType: ()}
_DESCRIPTORS = (types.MethodDescriptorType, types.ClassMethodDescriptorType, types.WrapperDescriptorType,
                types.GetSetDescriptorType, types.MemberDescriptorType)
_ON_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_definition = ctypes.pythonapi.PyModule_GetDef
_definition.argtypes, _definition.restype = [ctypes.py_object], ctypes.c_void_p
_module_of_type = ctypes.pythonapi.PyType_GetModule
_module_of_type.argtypes, _module_of_type.restype = [ctypes.py_object], ctypes.c_void_p
_originals: dict[int, types.ModuleType] = {}  # by the address of their definition
_seen: dict[int, object] = {}  # modules and types that are no copies, or are declared


def declare(fn: object) -> bool:
    """Declare the module or the type of a C callable, if that is a copy of one that has rows."""
    owner = _owner_of(fn)
    module = _module_of_c_type(owner) if isinstance(owner, type) else owner
    if id(owner) in _seen or type(module) is not types.ModuleType and not is_c_type(owner):
        return False
    _seen[id(owner)] = owner
    if isinstance(owner, type) and module is None:
        return _declare_pairs([pair for known in _same_types(owner) for pair in _type_pairs(owner, known)])
    assert isinstance(module, types.ModuleType)
    if not _originals:
        _originals.update(_hook.definitions(sys.modules))
    original = _originals.get(_definition(module) or 0)
    if original is None or original is module:
        return False
    pairs = [*_pairs(module, original)]
    if isinstance(owner, type) and not any(owner is copy for copy, _ in pairs):  # not exported by the module
        pairs += [pair for known in _hidden_types(original) if known.__name__ == owner.__name__
                  for pair in _type_pairs(owner, known)]
    return _declare_pairs(pairs)


def _declare_pairs(pairs: list[tuple[object, object]]) -> bool:
    for copy, known in pairs:
        if id(known) in ROWS and id(copy) not in ROWS:
            ROWS[id(copy)], NAMES[id(copy)] = replace(ROWS[id(known)], obj=copy), NAMES[id(known)]
        if id(known) in PLANNERS:
            PLANNERS[id(copy)] = PLANNERS[id(known)]
        alias(copy, known)
    return bool(pairs)


def _owner_of(fn: object) -> object:
    if type(fn) is types.BuiltinFunctionType:
        return fn.__self__
    return fn.__objclass__ if isinstance(fn, _DESCRIPTORS) else fn


def _module_of_c_type(owner: type) -> object:
    if not is_c_type(owner):
        return None
    try:
        address = _module_of_type(owner)
    except TypeError:  # a type without a module
        return None
    return ctypes.cast(address, ctypes.py_object).value


def _same_types(owner: type) -> list[type]:
    """A type that rows know, of the same name and with the same C code in each slot: for types that name no module."""
    if not owner.__flags__ & _ON_HEAP:  # there is one of it
        return []
    known = [row.obj for row in [*ROWS.values()] if isinstance(row.obj, type) and row.obj is not owner
             and (row.obj.__module__, row.obj.__name__) == (owner.__module__, owner.__name__)]
    return [each for each in known[:1] if all(
        key in vars(each) and _same_code(part, vars(each)[key]) for key, part in vars(owner).items()
        if isinstance(part, types.WrapperDescriptorType))]


def _hidden_types(original: types.ModuleType) -> set[type]:
    """Types of a module that rows know by their methods alone."""
    owners = {row.obj.__objclass__ for row in ROWS.values() if isinstance(row.obj, _DESCRIPTORS)}
    return {owner for owner in owners if owner.__module__ in (original.__name__, original.__name__.lstrip("_"))
            and _module_of_c_type(owner) is original}


def _pairs(module: types.ModuleType, original: types.ModuleType) -> Iterator[tuple[object, object]]:
    """C callables, types and attributes of a copy, each with its original."""
    known = vars(original)
    for name, value in list(vars(module).items()):
        other = known.get(name)
        if isinstance(value, type) and isinstance(other, type):
            if value is not other and _module_of_c_type(value) is module and _module_of_c_type(other) is original:
                yield from _type_pairs(value, other)
        elif value is not other and _same_code(value, other):
            yield value, other


def _type_pairs(value: type, other: type) -> Iterator[tuple[object, object]]:
    if value.__basicsize__ == other.__basicsize__:
        yield value, other
        theirs = dict(c_members(other))
        yield from ((part, theirs[key]) for key, part in c_members(value)
                    if key in theirs and _same_code(part, theirs[key]))


def _same_code(value: object, other: object) -> bool:
    places = _POINTERS.get(type(value))
    return places is not None and type(value) is type(other) and all(
        _pointer(value, place) == _pointer(other, place) for place in places)


def _pointer(value: object, place: int) -> int | None:
    return ctypes.c_void_p.from_address(id(value) + _HEAD + place * _WORD).value


def refuse_changed_builtins(vm: VM, name: str) -> None:
    """Break where a `__reduce__` in C reads `iter` or `getattr` from builtins that the program has changed."""
    scope = vm.heap.scope(builtins.__dict__) if name.startswith("__reduce") else None
    given = getattr(vm.running.func, "__builtins__", builtins.__dict__)  # those of the frame that asks
    if scope is not None and (scope.overlay or scope.shadow is not None
                              or vm.heap.original_of(given) is not builtins.__dict__):
        raise Break("SB006", "a __reduce__ in C, which reads builtins that the program may have changed")
