"""Opcodes of names, globals and imports.   name  ->  what its namespace holds, guarded"""

from __future__ import annotations

import builtins
import sys
from typing import Any

import torch

from stator.breaks import Break
from stator.code.instruction import Instruction
from stator.code.opcodes import NULL_LAST
from stator.guards.guard import Kind
from stator.host.value_kinds import is_a
from stator.interp.frame import NULL, UNBOUND, Continuation, Frame, Raised
from stator.interp.imports import absolute_name, guard_registered, parents_of, refuse_loading
from stator.interp.lookup import MISSING
from stator.interp.machine import declined, op
from stator.interp.objects.attributes import load_attr
from stator.interp.opcodes.data_opcodes import read_cell, unbound_cell
from stator.interp.services import VM
from stator.source import Key, Pinned


def name_error(name: str) -> Raised:
    return Raised(NameError(f"name '{name}' is not defined", name=name))


def read_global(vm: VM, frame: Frame, name: str) -> Any:
    value = frame.scope.read(name)
    if value is MISSING:
        value = vm.heap.scope(builtins.__dict__).read(name)
    return value


@op
def LOAD_GLOBAL(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.scope.seen.get(instr.argval, MISSING) if not frame.scope.overlay else MISSING
    if value is MISSING:
        value = read_global(vm, frame, instr.argval)
        if value is MISSING:
            raise name_error(instr.argval)
    if not instr.flag:
        frame.stack.append(value)
    else:
        frame.stack += (value, NULL) if NULL_LAST else (NULL, value)


@op
def STORE_GLOBAL(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.scope.write(instr.argval, frame.stack.pop())


@op
def DELETE_GLOBAL(vm: VM, frame: Frame, instr: Instruction) -> None:
    if frame.scope.read(instr.argval) is MISSING:
        raise name_error(instr.argval)
    frame.scope.write(instr.argval, MISSING)


def read_name(vm: VM, names: Any, name: str) -> Any:
    """A name in a class body's namespace, which a metaclass's `__prepare__` may have made."""
    if type(names) is dict:
        return names.get(name, MISSING)
    try:
        return vm.native(type(names).__getitem__, (names, name))
    except Raised as raised:
        if not is_a(raised.exc, KeyError):
            raise
        return MISSING


def push_name_or_cell(vm: VM, frame: Frame, names: Any, slot: int) -> None:
    value = read_name(vm, names, frame.unit.local_names[slot])
    if value is MISSING:
        value = read_cell(frame, slot)
        if value is UNBOUND:
            raise unbound_cell(frame, slot)
    frame.stack.append(value)


def push_name_or_global(vm: VM, frame: Frame, names: Any, name: str) -> None:
    value = read_name(vm, names, name)
    if value is MISSING:
        value = read_global(vm, frame, name)
        if value is MISSING:
            raise name_error(name)
    frame.stack.append(value)


@op
def LOAD_CLASSDEREF(vm: VM, frame: Frame, instr: Instruction) -> None:
    push_name_or_cell(vm, frame, frame.names, instr.arg)


@op
def LOAD_NAME(vm: VM, frame: Frame, instr: Instruction) -> None:
    push_name_or_global(vm, frame, frame.names, instr.argval)


@op
def STORE_NAME(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack.pop()
    if type(frame.names) is dict:
        frame.names[instr.argval] = value
    else:
        vm.native(type(frame.names).__setitem__, (frame.names, instr.argval, value))


@op
def DELETE_NAME(vm: VM, frame: Frame, instr: Instruction) -> None:
    try:
        del frame.names[instr.argval]
    except KeyError:
        raise name_error(instr.argval) from None


@op
def SETUP_ANNOTATIONS(vm: VM, frame: Frame, instr: Instruction) -> None:
    if read_name(vm, frame.names, "__annotations__") is MISSING:
        frame.names["__annotations__"] = {}


@op
def LOAD_BUILD_CLASS(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.stack.append(builtins.__build_class__)


@op
def LOAD_ASSERTION_ERROR(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.stack.append(AssertionError)


@op
def IMPORT_NAME(vm: VM, frame: Frame, instr: Instruction) -> None:
    fromlist, level = frame.stack.pop(), frame.stack.pop()
    module = import_module(vm, frame, instr.argval, fromlist, level)
    frame.stack.append(module)


def import_module(vm: VM, frame: Frame, name: str, fromlist: Any, level: int) -> Any:
    """`__import__`; which module a name leads to is guarded in sys.modules."""
    namespace = frame.scope.namespace
    if vm.heap.scope(builtins.__dict__).read("__import__") is not builtins_import:
        raise Break("SB001", "builtins.__import__ was replaced")
    refuse_loading(vm, namespace, name, fromlist, level)
    full = absolute_name(namespace, name, level)
    try:
        module = vm.native_unhooked(builtins_import, (name, namespace, None, fromlist, level))
    except Raised:
        guard_registered(vm, *parents_of(full), full)
        raise
    top = full.removesuffix(name) + name.partition(".")[0]  # which a plain `import a.b` gives
    guard_registered(vm, full, full if fromlist else top)
    return module


builtins_import = builtins.__import__


class SubmoduleFallback(Continuation):
    """`from package import submodule`, where the package has no such attribute yet."""

    __slots__ = ("module", "name")

    def __init__(self, module: torch.nn.Module, name: str) -> None:
        self.module, self.name = module, name

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        frame.stack.append(value)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, AttributeError):
            return False
        package = getattr(self.module, "__name__", "<unknown module name>")
        found = sys.modules.get(f"{package}.{self.name}")
        if found is None:
            guard_registered(vm, f"{package}.{self.name}")
            origin = getattr(self.module, "__file__", None) or "unknown location"
            raise Raised(ImportError(f"cannot import name {self.name!r} from {package!r} ({origin})",
                                     name=package, path=getattr(self.module, "__file__", None)))
        vm.heap.guard(Key(Pinned(sys.modules), f"{package}.{self.name}"), Kind.ID, found)
        frame.stack.append(found)
        return True


@op
def IMPORT_FROM(vm: VM, frame: Frame, instr: Instruction) -> None:
    module = frame.stack[-1]
    load_attr(vm, module, instr.argval, SubmoduleFallback(module, instr.argval))


declined("SB011", "IMPORT_STAR", "PRINT_EXPR")
