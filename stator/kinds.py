"""Ask for the real class of a value.   is_a(obj, type)

`isinstance` also believes `obj.__class__`, and so runs a user's `__getattribute__`; this never does.
"""

from __future__ import annotations

from typing import Any


def is_a(value: Any, classes: Any) -> bool:
    return issubclass(type(value), classes)
