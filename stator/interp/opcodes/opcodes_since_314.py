"""Opcodes of 3.14: `__enter__` and `__exit__` looked up one by one; template strings.

    with manager: ...      ->  LOAD_SPECIAL __exit__, LOAD_SPECIAL __enter__, CALL 0
    t"{x!r:>{n}}"          ->  BUILD_INTERPOLATION, BUILD_TEMPLATE: objects of string.templatelib, made natively
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from stator.code.instruction import Instruction
from stator.interp.frame import NULL, Frame
from stator.interp.lookup import MISSING, find
from stator.interp.machine import declined, op
from stator.interp.opcodes.exception_opcodes import special_method
from stator.interp.services import VM

_KINDS = {"": "context manager", "a": "asynchronous context manager"}


def refusal(cls: type, name: str, has_other: Callable[[str], bool]) -> str:
    """Text of the TypeError about a class without this method; `has_other` is true of methods that it has."""
    prefix, other = ("a", "") if name.startswith("__a") else ("", "a")
    shown = cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"
    text = f"'{shown}' object does not support the {_KINDS[prefix]} protocol (missed {name} method)"
    if not has_other(name) and has_other(f"__{other}enter__") and has_other(f"__{other}exit__"):
        text += f" but it supports the {_KINDS[other]} protocol. Did you mean to use '{'async ' if other else ''}with'?"
    return text


@op
def LOAD_SPECIAL(vm: VM, frame: Frame, instr: Instruction) -> None:
    owner, name = frame.stack.pop(), instr.argval
    cls = type(owner)
    text = refusal(cls, name, lambda each: find(vm, cls, each) is not MISSING)
    method = special_method(vm, owner, name, text)
    frame.stack += (method, NULL)
    if name == "__exit__":
        vm.torch_state.note_block(method)


def interpolation(instr: Instruction) -> Callable[..., object]:
    """BUILD_INTERPOLATION as a function of its operands."""
    make = importlib.import_module("string.templatelib").Interpolation
    conversion = (None, "s", "r", "a")[instr.arg >> 2]
    return lambda value, text, spec="": make(value, text, conversion, spec)


def template(strings: tuple[str, ...], interpolations: tuple[object, ...]) -> object:
    """BUILD_TEMPLATE: strings are one more than interpolations, which stand between them."""
    parts = [part for pair in zip(strings, interpolations, strict=False) for part in pair]
    return importlib.import_module("string.templatelib").Template(*parts, strings[-1])


declined("SB011", "BUILD_TEMPLATE", "BUILD_INTERPOLATION")
