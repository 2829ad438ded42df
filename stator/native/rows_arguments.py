"""Further facts about rows: what a C function does with its arguments.

    also(list, "append", stores=True)   ->   the row of list.append states that the item is not looked at
"""

from __future__ import annotations

import builtins
import collections
import functools
import itertools
import math
import operator

import torch

from stator.native import rows_builtins, rows_library, rows_packages  # noqa: F401  (declare the rows)
from stator.native.rows_declare import also

owner: type

# Callbacks.
also(builtins, "map filter", calls_at=0, asks_items=True)
also(functools, "reduce", calls_at=0, asks_items=True)
also(itertools, "starmap filterfalse takewhile dropwhile", calls_at=0)
also(itertools, "accumulate groupby", calls_at=1)
for owner, at in ((map, 1), (filter, 1), (itertools.starmap, 1), (itertools.accumulate, 2), (itertools.groupby, 2)):
    also(owner, "__new__", calls_at=at)
also(builtins, "sorted min max", asks_items=True)
also(list, "sort", asks_items=True)

# Order of sets.
also(builtins, "list tuple enumerate zip map filter", shows_order=True)
also(list, "extend __init__", shows_order=True)
also(itertools, "chain islice cycle accumulate product combinations permutations zip_longest", shows_order=True)
also(set, "pop __iter__", shows_order=True)
also(frozenset, "__iter__", shows_order=True)
also(dict, "fromkeys", shows_order=True)
also(str, "join", shows_order=True)
also(collections, "deque", shows_order=True)
also(functools, "reduce", shows_order=True)
also(set, "add discard remove clear", orderless=True)

# Copies.
also(builtins, "list tuple dict zip enumerate reversed len", copies=True)
also(collections, "deque OrderedDict", copies=True)
also(itertools, "chain islice", copies=True)
also(torch._C, "Size", copies=True)
also(list, "__add__ __iadd__ __mul__ __rmul__ __imul__ __getitem__ __len__ copy extend insert pop reverse "
     "clear", copies=True)
also(tuple, "__new__ __add__ __mul__ __rmul__ __getitem__ __len__", copies=True)
also(torch.Size, "__add__ __getitem__", copies=True)
also(dict, "update copy pop popitem __len__", copies=True)
also(collections.deque, "extend extendleft pop popleft reverse rotate insert clear copy __copy__ __len__ "
     "__add__ __iadd__ __mul__ __imul__ __getitem__ __reversed__", copies=True)
also(builtins, "slice", stores=True)
also(list, "append", stores=True)
also(collections.deque, "append appendleft", stores=True)
also(dict, "setdefault", stores=True)

# Keys.
also(builtins, "dict", pairs_at=0)
also(collections, "OrderedDict", pairs_at=0)
also(dict, "update", pairs_at=1)
also(dict, "setdefault pop", takes_key=True)
for owner in (set, frozenset):
    also(owner, "isdisjoint issubset issuperset union intersection difference symmetric_difference", hashes_items=True)
also(set, "update intersection_update difference_update symmetric_difference_update", hashes_items=True)
also(type({}.keys()), "isdisjoint", hashes_items=True)
also(type({}.items()), "isdisjoint", hashes_items=True)
also(dict, "fromkeys", hashes_items=True)
also(builtins, "set frozenset", hashes_walked=True)
also(set, "update", hashes_walked=True)
also(collections, "_count_elements", hashes_walked=True)

# Numbers and tensors.
also(builtins, "float int bool complex", makes_number=True)
also(operator, "index", makes_number=True)
for name in ("len", "abs", "pow", "round"):
    also(builtins, name, slot=f"__{name}__")
for name in ("trunc", "floor", "ceil"):
    also(math, name, slot=f"__{name}__")
also(torch._C, "_set_grad_enabled device", asks_modes=True)
also(list, "extend insert", asks_modes=False)
also(dict, "update __setitem__", asks_modes=False)
