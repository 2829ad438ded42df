"""Ask for the real class of a value.   is_a(obj, type)

`isinstance` also believes `obj.__class__`, and so runs a user's `__getattribute__`; this never does.
"""

from __future__ import annotations

from typing import Any


def is_a(value: Any, classes: Any) -> bool:
    return issubclass(type(value), classes)


def module_of(cls: type) -> str:
    """The name of a class's module, without asking its metaclass; "" where it has none (one that C code has made)."""
    try:
        name = type.__getattribute__(cls, "__module__")
    except AttributeError:
        return ""
    return name if type(name) is str else ""


def name_in_errors(value: Any) -> str:
    """The name of the class of a value, quoted, as CPython puts it into errors.   'types.SimpleNamespace'"""
    try:
        str.upper.__get__(value)
    except TypeError as error:
        return str(error).rpartition(" to a ")[2].removesuffix(" object")
    return repr(type(value).__name__)
