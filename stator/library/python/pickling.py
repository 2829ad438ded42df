"""Rules for pickle.   pickle.dumps(config), pickle.loads(constant)  ->  bytes and plain values, at trace time

In: plain values: constants, and lists, tuples, dicts and sets of them, exactly of these classes.  C code that reads
them sees the shadows, filled and guarded; which texts are one object decides over the bytes, and is a fact, too.  A
pickle is read where it makes such values only: it names no class and calls nothing.
"""

from __future__ import annotations

import _pickle
import pickletools
from typing import Any

from stator.breaks import Break
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.rule_registry import rule
from stator.interp.vm import VM

_PLAIN = (str, bytes, int, float, bool, type(None), complex)
_CONTAINERS = (list, tuple, dict, set, frozenset)
_CALLS = frozenset("GLOBAL STACK_GLOBAL INST OBJ NEWOBJ NEWOBJ_EX REDUCE BUILD EXT1 EXT2 EXT4 PERSID BINPERSID".split())


def check_plain(vm: VM, value: Any, seen: dict[int, Any]) -> None:
    """Break at what has a way of its own of being pickled."""
    cls = type(value)
    if cls in (str, bytes):
        vm.guard_identity(value)
    if cls in _PLAIN:
        return
    if cls not in _CONTAINERS or cls in (set, frozenset) and id(value) in vm.heap.by_standin:
        raise Break("SB001", f"pickling a {cls.__name__}: it reads the whole state of it, past the shadows")
    if id(value) in seen:
        return
    seen[id(value)] = value
    for part in (*value, *value.values()) if cls is dict else value:
        check_plain(vm, part, seen)


@rule(_pickle.dumps)
def _dumps(vm: VM, /, *args: Any, **kwargs: Any) -> Any:
    vm.heap.expose_deep(args)
    values = specialise_deep(vm, args)
    options = specialise_deep(vm, tuple(kwargs.values()))
    if any(type(option) not in _PLAIN for option in options):
        raise Break("SB001", "pickle.dumps with a buffer callback")
    check_plain(vm, values, {})
    return vm.native_unhooked(_pickle.dumps, values, dict(zip(kwargs, options, strict=True)))


@rule(_pickle.loads)
def _loads(vm: VM, data: Any, /, **options: Any) -> Any:
    if options or type(data) is not bytes:
        raise Break("SB001", "pickle.loads of something else than bytes, or with options")
    try:
        names = {code.name for code, _, _ in pickletools.genops(data)}
    except ValueError as error:
        raise Break("SB001", f"pickle.loads of something that is no pickle ({error})") from None
    if names & _CALLS:
        raise Break("SB001", "pickle.loads of objects, whose classes make them")
    return vm.native_unhooked(_pickle.loads, (data,))
