"""Lines of Python source and the constants they name.   w.constant(obj, "code") -> "code_0", bound at exec time"""

from __future__ import annotations

import builtins
import keyword
import re
import types
from typing import Any

from stator.host.value_kinds import is_a, name_of_class

_LITERALS = (int, bool, str, bytes, type(None), type(...))
_NAMED = frozenset({types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.ModuleType,
                    types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType})


def name_of(value: object) -> str:
    if is_a(value, type):
        return str(name_of_class(value))
    name = getattr(value, "__name__", None) if type(value) in _NAMED else None
    return name if type(name) is str and name else str(name_of_class(type(value)))


class Writer:
    """Collects the body of one function, its constants and its fresh names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._by_id: dict[int, str] = {}
        self._used: set[str] = set()

    def line(self, text: str) -> None:
        self.lines.append(text)

    def fresh(self, hint: str) -> str:
        name = re.sub(r"\W+", "_", hint).strip("_") or "v"
        if name[0].isdigit() or keyword.iskeyword(name) or hasattr(builtins, name):  # the text calls builtins by name
            name = f"v_{name}"
        candidate, n = name, 0
        while candidate in self._used:
            n += 1
            candidate = f"{name}_{n}"
        self._used.add(candidate)
        return candidate

    def constant(self, value: object, hint: str = "") -> str:
        if type(value) in _LITERALS and (type(value) is not int or abs(value) < 1 << 64):
            return repr(value)
        return self.held(value, hint)

    def held(self, value: object, hint: str = "") -> str:
        name = self._by_id.get(id(value))
        if name is None:
            name = self.fresh(hint or name_of(value))
            self._by_id[id(value)] = name
            self.names[name] = value
        return name

    def source(self, name: str, parameters: list[str]) -> str:
        body = self.lines or ["pass"]
        return f"def {name}({', '.join(parameters)}):\n" + "".join(f"    {line}\n" for line in body)
