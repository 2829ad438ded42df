"""Rows for C functions of CPython's own test extension.   declare()  ->  `_testcapi.meth_o` may run while tracing

The table of Stator has no row for an extension that only tests import, so its functions break.  Their sources are
known: those below read nothing but their arguments, or call what they are given.  Others stay unknown.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

from stator.native import rows_declare as row

METHODS = "meth_varargs meth_varargs_keywords meth_o meth_noargs meth_fastcall meth_fastcall_keywords"
CALLS = "pyobject_fastcall pyobject_fastcalldict pyobject_vectorcall pyvectorcall_call"


@functools.cache
def declare() -> None:
    """Declare what this interpreter has of it."""
    if importlib.util.find_spec("_testcapi") is None or importlib.util.find_spec("xxsubtype") is None:
        return
    extension = importlib.import_module("_testcapi")
    row.shell(extension, METHODS)
    for name in ("MethClass", "MethInstance", "MethStatic"):
        owner = getattr(extension, name, None)
        if owner is not None:
            row.shell(owner, f"{METHODS} __new__")
            row.shell(extension, name)
    row.deep(extension, CALLS, calls_back=True)
    row.deep(extension, "bad_get", calls_back=True)
    row.shell(extension, "float_pack float_unpack make_exception_with_doc awaitType")
    if hasattr(extension, "awaitType"):
        row.shell(extension.awaitType, "__new__ __init__ __await__")
    row.shell(extension, "unicode_legacy_string")
    for owner in (extension, importlib.import_module("_testinternalcapi")):
        if hasattr(owner, "hamt"):
            _declare_mapping(owner)
    row.deep(extension, "sequence_getitem dict_getitem_knownhash", calls_back=True)
    row.mutates(extension, "sequence_setitem sequence_delitem", calls_back=True)
    subtypes = importlib.import_module("xxsubtype")  # a list and a dict that hold a number
    for owner in (subtypes.spamlist, subtypes.spamdict):
        row.shell(owner, "getstate classmeth staticmeth")
        row.mutates(owner, "setstate")
        row.mutates(owner, "__init__", calls_back=True)
        row.attributes(owner, "state", row.NativeClass.PURE_SHELL, why="calls getstate, which only counts")


def _declare_mapping(extension: Any) -> None:
    """An immutable mapping in C, which hashes and compares its keys."""
    mapping = type(extension.hamt())
    row.deep(extension, "hamt", calls_back=True)
    row.deep(mapping, "set get delete items keys values __len__ __iter__ __contains__ __getitem__ __eq__ __ne__",
             calls_back=True)
    for view in (mapping.items, mapping.keys, mapping.values):
        row.deep(type(view(extension.hamt())), "__len__ __iter__", calls_back=True)
