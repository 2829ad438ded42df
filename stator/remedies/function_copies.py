"""Copies of user functions with changed code, captured in place of the originals.

In: reached functions of the user and changed texts of their files.  Out: a context in which captures meet the copies.
The functions, their modules and their classes stay as they are: the copies are substitutes of the tracer.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping

from stator.audit.reach import Reached
from stator.capture.callables import traceable
from stator.settings import marks

OPERATORS = "remedies::"  # the namespace of proposed custom operators
_numbers = itertools.count(1)


class NotApplicable(Exception):
    """A change cannot be applied to a copy of the function."""


class Functions:
    """The Python functions that a call reaches, by file and qualified name."""

    def __init__(self, reached: Mapping[int, Reached]) -> None:
        self.by_name: dict[tuple[str, str], list[types.FunctionType]] = {}
        for each in reached.values():
            if type(each.value) is types.FunctionType:
                code = each.value.__code__
                self.by_name.setdefault((code.co_filename, code.co_qualname), []).append(each.value)

    def find(self, filename: str, name: str) -> list[types.FunctionType]:
        """Functions of a qualified name, also those that a module holds which the call names."""
        found = self.by_name.get((filename, name), [])
        if found or "<locals>" in name:
            return found
        for module in list(sys.modules.values()):
            if getattr(module, "__file__", None) == filename:
                member: object = module
                for part in name.split("."):
                    member = getattr(member, "__dict__", {}).get(part)
                if type(member) is types.FunctionType and member.__code__.co_filename == filename:
                    return [member]
        return []


def copy_of(function: types.FunctionType, code: types.CodeType, namespace: dict[str, object] | None,
            ) -> types.FunctionType:
    """The function with other code, and the same cells, defaults and globals."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if not cells.keys() >= set(code.co_freevars):
        raise NotApplicable("the change reads names of the function around it")
    closure = tuple(cells[name] for name in code.co_freevars)
    made = types.FunctionType(code, function.__globals__ if namespace is None else namespace, function.__name__,
                              function.__defaults__, closure)
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    made.__module__ = function.__module__
    return made


def namespace_with(function: types.FunctionType, definitions: str) -> dict[str, object] | None:
    """A copy of the function's globals with added definitions; None where there are none.

    Names of custom operators get a number: torch keeps one operator for a name.
    """
    if not definitions:
        return None
    namespace = dict(function.__globals__)
    numbered = re.sub(rf'"{OPERATORS}(\w+)"', lambda found: f'"{OPERATORS}{found[1]}_{next(_numbers)}"', definitions)
    exec(compile(numbered, "<remedy>", "exec"), namespace)  # noqa: S102  the proposed text
    return namespace


@contextlib.contextmanager
def substituted(copies: Mapping[types.FunctionType, types.FunctionType]) -> Iterator[None]:
    """Capture the copies in place of the originals while the block runs."""
    if any(marks.substitute(original) is not None for original in copies):
        raise NotApplicable("the function has a substitute already")
    try:
        for original, copy in copies.items():
            marks.substitute_in_graph(original, marks.Substitute(copy, False))
        yield
    finally:
        for original in copies:
            marks._substitutes._rows.pop(id(original), None)


def with_copies(fn: Callable[..., object], copies: Mapping[types.FunctionType, types.FunctionType],
                ) -> Callable[..., object]:
    """The function or method that a capture of `fn` starts with; below it, substitutes are met."""
    traced = traceable(fn)
    if isinstance(traced, types.MethodType):
        function = traced.__func__
        copy = copies.get(function) if isinstance(function, types.FunctionType) else None
        return traced if copy is None else types.MethodType(copy, traced.__self__)
    return copies.get(traced, traced) if isinstance(traced, types.FunctionType) else traced
