"""Read the real class of a value.   is_a(obj, type)

`isinstance` also believes `obj.__class__`, and so runs a user's `__getattribute__`; this never does.
"""

from __future__ import annotations

import re
from typing import Any

BUILTIN_METHOD: type = type(re.compile("").match)  # a bound C function that knows the class which defines it

# Whatever a metaclass defines.
name_of_class = type.__dict__["__name__"].__get__
qualified_name_of = type.__dict__["__qualname__"].__get__
dict_of_class = type.__dict__["__dict__"].__get__
mro_of = type.__dict__["__mro__"].__get__


def is_a(value: Any, classes: Any) -> bool:
    return issubclass(type(value), classes)


def module_of(cls: type) -> str:
    """The name of a class's module, past its metaclass; "" where it has none (one that C code has made)."""
    try:
        name = type.__getattribute__(cls, "__module__")
    except AttributeError:
        return ""
    return name if type(name) is str else ""


def name_in_errors(cls: type) -> str:
    """A class as CPython's errors name it: with its module where C code defines it.   collections.deque"""
    name: str = name_of_class(cls)
    try:
        type.__getattribute__(cls, "\0")
    except AttributeError as error:
        shown = str(error).partition("'")[2]
        if not f"{shown}'".startswith(name[:50] + "'" * (len(name) < 50)):  # it is cut off there
            return f"{module_of(cls)}.{name}"
    return name
