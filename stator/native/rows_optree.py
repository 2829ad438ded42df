"""Rows for optree, once the program has imported it.   optree.tree_map(f, tree)  ->  its C functions run while tracing

In: nothing, until optree is there.  Out: rows for its C functions and for the methods of its PyTreeSpec.  They look at
containers as deep as they go, call the functions that classes are registered with, and hand the leaves on as they are.
Which classes are registered, and whether dicts keep their order, is guarded.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from stator.native.rows_declare import C_CALLABLES, ROWS, NativeClass, add, underlying

_entries: dict[int, Any] = {}  # of the registry, kept so that an id stays that of one entry


def registered(*names: str) -> tuple[Any, ...]:
    """What optree knows of classes now, and of the order of dicts in the namespaces of these names."""
    entries = list(sys.modules["optree.registry"]._NODETYPE_REGISTRY.values())
    for entry in entries:
        _entries.setdefault(id(entry), entry)
    ordered = sys.modules["optree._C"].is_dict_insertion_ordered
    return *map(id, entries), *[ordered(name) for name in ("", *names)]


_FACTS: dict[str, Any] = {"calls_back": True, "fresh": True, "depends": registered}
_FUNCTIONS = """
    flatten flatten_with_path make_leaf make_none make_from_collection all_leaves is_leaf is_namedtuple
    is_namedtuple_class is_namedtuple_instance namedtuple_fields is_structseq is_structseq_class is_structseq_instance
    structseq_fields is_dict_insertion_ordered
    """.split()
_METHODS = """
    unflatten flatten_up_to broadcast_to_common_suffix transform compose traverse walk paths accessors entries entry
    children child one_level is_leaf is_one_level is_prefix is_suffix num_nodes num_leaves num_children none_is_leaf
    namespace type kind __len__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__
    """.split()
_declared = False


def declare_once() -> bool:
    """Declare the rows if optree is there and has none yet; whether that was done."""
    global _declared
    functions = sys.modules.get("optree._C")
    if _declared or functions is None:
        return False
    _declared = True
    _add(functions, "optree", _FUNCTIONS)
    _add(functions.PyTreeSpec, "optree.PyTreeSpec", _METHODS)
    return True


def _add(owner: types.ModuleType | type, place: str, names: list[str]) -> None:
    for name in names:
        entry = vars(owner).get(name)
        value = underlying(underlying(entry.fget) if isinstance(entry, property) else entry)
        if isinstance(value, C_CALLABLES) and id(value) not in ROWS:
            add(value, f"{place}.{name}", NativeClass.PURE_DEEP, _FACTS)

