"""Keys that the program puts into outside dicts and sets.   table[key] = v  ->  a break, where key.__eq__ has effects

In: a C function that changes a table, and its arguments.  Out: nothing; a break where the residual, which hashes and
compares the keys once more, would repeat an effect.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from stator.heap.tracker import ShadowKind
from stator.host.value_kinds import is_a
from stator.interp.key_effects import check_hashes, runs_python
from stator.interp.services import VM

_STORES = frozenset({operator.setitem, operator.delitem, dict.__setitem__, dict.setdefault, dict.pop,
                     dict.__delitem__, set.add, set.remove, set.discard})
_PAIRS = frozenset({dict.update, dict.__ior__})
_MEMBERS = frozenset({set.update, set.__ior__, set.__ixor__, set.symmetric_difference_update, set.difference_update,
                      set.__isub__, operator.ior, operator.ixor, operator.isub})


def check_written(vm: VM, fn: object, args: tuple[object, ...]) -> None:
    """The residual hashes a key that the program puts into an outside dict or set again, and compares it."""
    keys = [key for key in _keys(fn, args) if runs_python(key)]
    tracker = vm.heap.by_standin.get(id(args[0])) if keys else None
    if tracker is not None and (tracker.initial is not None or tracker.shape is not ShadowKind.DICT):  # filled by now
        check_hashes(vm, keys, args[0])


def _keys(fn: object, args: tuple[Any, ...]) -> Iterable[object]:
    if fn in _STORES:
        return args[1:2]
    if fn not in _PAIRS and fn not in _MEMBERS:
        return ()
    found: list[object] = []
    for given in args[1:]:
        if is_a(given, dict):
            found += dict.__iter__(given)
        elif is_a(given, (set, frozenset)):
            found += (set if is_a(given, set) else frozenset).__iter__(given)
        elif type(given) in (list, tuple):
            found += given if fn in _MEMBERS else [
                pair[0] for pair in given if type(pair) in (list, tuple) and len(pair) == 2]
    return found
