"""C callables without a row.   unlisted(list)  ->  []"""

from __future__ import annotations

import types

from stator.native import rows_declare
from stator.native.table import lookup


def unlisted(owner: types.ModuleType | type) -> list[str]:
    """The C callables and attributes of a module, or of one C type, that have no row."""
    missing = []
    for name, value in rows_declare.c_members(owner):
        if lookup(value) is None:  # a module may export a bound method, such as random.random
            missing.append(f"{rows_declare.owner_name(owner)}.{name}")
    if isinstance(owner, types.ModuleType):
        for value in dict.fromkeys(v for v in list(vars(owner).values()) if rows_declare.is_c_type(v)):
            missing += unlisted(value)
    return missing
