"""Content of a code object as one text.   function source -> code object -> sha256

In: a code object.  Out: a digest, equal where CPython executes the same instructions on the same constants.  The path
of the file and the number of the first line are no part of it: a function that has moved keeps its digest.  Lines
relative to the first one belong to it, because tracebacks show them.
"""

from __future__ import annotations

import hashlib
import types


def code_hash(code: types.CodeType) -> str:
    """Digest of a code object with all code objects inside it."""
    parts: list[str] = []
    _list_parts(parts, code)
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _list_parts(parts: list[str], code: types.CodeType) -> None:
    parts.append(repr((
        code.co_name, code.co_qualname, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
        code.co_flags, code.co_stacksize, code.co_nlocals, code.co_names, code.co_varnames, code.co_freevars,
        code.co_cellvars, code.co_code, code.co_linetable, code.co_exceptiontable, len(code.co_consts))))
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            _list_parts(parts, constant)
        else:
            parts.append(constant_text(constant))


def constant_text(value: object) -> str:
    """A constant of a code object; -0.0, 0.0, 0 and False differ, the order of a frozenset does not count."""
    if type(value) is frozenset:
        return f"frozenset({sorted(map(constant_text, value))})"
    if type(value) is tuple:
        return f"({','.join(map(constant_text, value))})"
    return f"{type(value).__name__}:{value!r}"
