"""Opcodes of the stack, constants, variables, names and imports.   name  ->  the entry of its namespace, guarded

An import of a loaded module is a lookup.  Loading one runs its code: that of the standard library or of an installed
package may run while tracing, as the program loads it in this very call; code of the user breaks.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import sys
import sysconfig
import types
from typing import Any

from stator.breaks import Break
from stator.code.flow import handed_over
from stator.code.instruction import Instruction
from stator.code.opcodes import NULL_LAST
from stator.guards.guard import Kind
from stator.heap.outside_changes import has_changed
from stator.heap.tracker import Box, unbox
from stator.host.value_kinds import is_a
from stator.interp.frame import NULL, UNBOUND, Continuation, Frame, Raised
from stator.interp.lookup import MISSING
from stator.interp.machine import declined, op, ops
from stator.interp.objects.attributes import load_attr
from stator.interp.objects.items import delete_item, get_item, set_item
from stator.interp.services import VM
from stator.source import Key, Pinned

builtins_import = builtins.__import__
_INSTALLED = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep
                    for name in ("stdlib", "platstdlib", "purelib", "platlib")})


@op
def SWAP(vm: VM, frame: Frame, instr: Instruction) -> None:
    stack, n = frame.stack, instr.arg
    stack[-1], stack[-n] = stack[-n], stack[-1]


@op
def LOAD_FAST(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.locals[instr.arg]
    if type(value) is Box:
        if value.forced or instr.index not in handed_over(frame.unit):
            value = frame.locals[instr.arg] = value.force()
    elif value is UNBOUND:
        raise unbound_local(frame, instr.arg)
    frame.stack.append(value)


def unbound_local(frame: Frame, slot: int) -> Raised:
    name = frame.unit.local_names[slot]
    return Raised(UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value"))


@op
def STORE_FAST(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack.pop()
    frame.locals[instr.arg] = UNBOUND if value is NULL else value  # NULL: what LOAD_FAST_AND_CLEAR found unbound


@op
def DELETE_FAST(vm: VM, frame: Frame, instr: Instruction) -> None:
    if frame.locals[instr.arg] is UNBOUND:
        raise unbound_local(frame, instr.arg)
    frame.locals[instr.arg] = UNBOUND


@op
def MAKE_CELL(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.locals[instr.arg]
    frame.locals[instr.arg] = types.CellType() if value is UNBOUND else types.CellType(value)


@op
def COPY_FREE_VARS(vm: VM, frame: Frame, instr: Instruction) -> None:
    assert frame.func is not None
    for slot, cell in zip(frame.unit.free_slots, vm.closure_of(frame.func), strict=True):
        frame.locals[slot] = cell


def read_cell(frame: Frame, slot: int) -> Any:
    cell = frame.locals[slot]
    try:
        value = cell.cell_contents
    except ValueError:
        return UNBOUND
    if type(value) is Box:
        value = cell.cell_contents = value.force()
    return value


def unbound_cell(frame: Frame, slot: int) -> Raised:
    name = frame.unit.local_names[slot]
    if slot in frame.unit.free_slots:
        text = f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
        return Raised(NameError(text, name=name))
    return unbound_local(frame, slot)


@op
def LOAD_DEREF(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = read_cell(frame, instr.arg)
    if value is UNBOUND:
        raise unbound_cell(frame, instr.arg)
    frame.stack.append(value)


@op
def STORE_DEREF(vm: VM, frame: Frame, instr: Instruction) -> None:
    vm.heap.note_write(frame.locals[instr.arg])
    frame.locals[instr.arg].cell_contents = frame.stack.pop()


@op
def DELETE_DEREF(vm: VM, frame: Frame, instr: Instruction) -> None:
    if read_cell(frame, instr.arg) is UNBOUND:
        raise unbound_cell(frame, instr.arg)
    vm.heap.note_write(frame.locals[instr.arg])
    del frame.locals[instr.arg].cell_contents


def name_error(name: str) -> Raised:
    return Raised(NameError(f"name '{name}' is not defined", name=name))


def read_global(vm: VM, frame: Frame, name: str) -> Any:
    names = frame.scope.namespace
    value = frame.scope.read(name) if type(names) is dict else read_name(vm, names, name)
    return read_builtin(vm, frame, name) if value is MISSING else value


def builtins_of(vm: VM, frame: Frame) -> object:
    """The builtins that the program has given to exec() with the globals of a frame; None: those of the process."""
    if frame.func is None:
        return None
    found = frame.func.__builtins__  # type: ignore[attr-defined]
    if id(frame.func) not in vm.fresh:
        if found is not builtins.__dict__:
            raise Break("SB005", f"a dict of builtins, other than that of the process, of {frame.func.__name__}",
                        whole_call=True)
        return None
    if not vm.heap.dicts.made_scopes:
        return None
    return None if found is builtins.__dict__ or vm.heap.original_of(found) is builtins.__dict__ else found


def read_builtin(vm: VM, frame: Frame, name: str) -> Any:
    own = builtins_of(vm, frame)
    return vm.heap.scope(builtins.__dict__).read(name) if own is None else read_name(vm, own, name)


def load_build_class(vm: VM, frame: Frame, instr: Instruction) -> None:
    found = read_builtin(vm, frame, "__build_class__")
    if found is MISSING:
        raise Raised(NameError("__build_class__ not found"))
    frame.stack.append(found)


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
def DELETE_GLOBAL(vm: VM, frame: Frame, instr: Instruction) -> None:
    if frame.scope.read(instr.argval) is MISSING:
        raise name_error(instr.argval)
    frame.scope.write(instr.argval, MISSING)


def read_name(vm: VM, names: object, name: str) -> Any:
    """A name in the namespace of a class body or of exec(), which the program may have made; None: the globals."""
    if names is None or type(names) is dict and id(names) not in vm.heap.by_standin:
        return MISSING if names is None else unbox(names.get(name, MISSING))
    try:
        return vm.sync(lambda: get_item(vm, names, name))
    except Raised as raised:
        if not is_a(raised.exc, KeyError):
            raise
        return MISSING


def push_name_or_cell(vm: VM, frame: Frame, names: object, slot: int) -> None:
    value = read_name(vm, names, frame.unit.local_names[slot])
    if value is MISSING:
        value = read_cell(frame, slot)
        if value is UNBOUND:
            raise unbound_cell(frame, slot)
    frame.stack.append(value)


def push_name_or_global(vm: VM, frame: Frame, names: object, name: str) -> None:
    value = read_name(vm, names, name)
    if value is MISSING:
        value = frame.scope.read(name)
        value = read_builtin(vm, frame, name) if value is MISSING else value
        if value is MISSING:
            raise name_error(name)
    frame.stack.append(value)


@op
def STORE_NAME(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack.pop()
    if frame.names is None:
        frame.scope.write(instr.argval, value)
    elif type(frame.names) is dict and id(frame.names) not in vm.heap.by_standin:
        frame.names[instr.argval] = value
    else:
        vm.sync(lambda: set_item(vm, frame.names, instr.argval, value, None))


@op
def DELETE_NAME(vm: VM, frame: Frame, instr: Instruction) -> None:
    names = frame.scope.view() if frame.names is None else frame.names
    try:
        vm.sync(lambda: delete_item(vm, names, instr.argval, None))
    except Raised as raised:
        if not is_a(raised.exc, KeyError):
            raise
        raise name_error(instr.argval) from None


@op
def SETUP_ANNOTATIONS(vm: VM, frame: Frame, instr: Instruction) -> None:
    names = frame.scope.view() if frame.names is None else frame.names
    if read_name(vm, names, "__annotations__") is MISSING:
        vm.sync(lambda: set_item(vm, names, "__annotations__", {}, None))


@op
def IMPORT_NAME(vm: VM, frame: Frame, instr: Instruction) -> None:
    fromlist, level = frame.stack.pop(), frame.stack.pop()
    frame.stack.append(import_module(vm, frame, instr.argval, fromlist, level))


def import_module(vm: VM, frame: Frame, name: str, fromlist: object, level: int) -> Any:
    """`__import__`; which module a name leads to is guarded in sys.modules."""
    namespace = frame.scope.namespace
    importer = read_builtin(vm, frame, "__import__")
    if importer is MISSING:
        raise Raised(ImportError("__import__ not found"))
    if importer is not builtins_import:
        raise Break("SB001", "builtins.__import__ was replaced")
    if (found := module_of_the_trace(vm, name, fromlist, level)) is not None:
        return found
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


class SubmoduleFallback(Continuation):
    """`from package import submodule`, where the package has no such attribute yet."""

    __slots__ = ("module", "name")

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


def changed_modules(vm: VM) -> dict[str, Any] | None:
    """The stand-in of sys.modules, once the program has changed it; else None."""
    tracker = vm.heap.by_original.get(id(sys.modules))
    changed = tracker is not None and id(tracker) in vm.heap.changes.written and has_changed(tracker)
    return tracker.standin if changed and tracker is not None else None


def module_of_the_trace(vm: VM, name: str, fromlist: object, level: int) -> types.ModuleType | None:
    """A module that the program has put in sys.modules, imported by a plain name; None for other imports."""
    modules = changed_modules(vm)
    if modules is None or level or "." in name or name not in modules:
        return None
    found = unbox(modules[name])
    plain = type(found) is types.ModuleType and not vm.heap.scope(found.__dict__).overlay
    spec = found.__dict__.get("__spec__") if plain else None
    loaded = not getattr(spec, "_initializing", False)
    return found if plain and loaded and not (fromlist and "__path__" in found.__dict__) else None


def refuse_loading(vm: VM, namespace: dict[str, Any], name: str, fromlist: Any, level: int) -> None:
    """Break where an import would run user code, or find an entry that only the trace has made."""
    full = absolute_name(namespace, name, level)
    wanted = [full]
    if fromlist and is_a(sys.modules.get(full), types.ModuleType):
        own = sys.modules[full].__dict__
        wanted += [f"{full}.{part}" for part in fromlist if "__path__" in own and part not in own and part != "*"]
    modules = changed_modules(vm)
    if modules is not None and any(each not in modules or unbox(modules[each]) is not sys.modules.get(each)
                                   for each in (*parents_of(full), *wanted)):
        raise Break("SB006", "an import after the program has changed sys.modules")
    for module in wanted:
        if module not in sys.modules and (vm.effects.files.written or not is_installed(module.partition(".")[0])):
            vm.heap.guard(Pinned(sys.modules), Kind.ABSENT, module)  # once it is loaded, the next call goes on
            raise Break("SB006", f"the import of {module}, which is not loaded yet")


def guard_registered(vm: VM, *names: str) -> None:
    """Guard what sys.modules has under these names: a module, None, or nothing."""
    for name in names:
        if name in sys.modules:
            vm.heap.guard(Key(Pinned(sys.modules), name), Kind.ID, sys.modules[name])
        else:
            vm.heap.guard(Pinned(sys.modules), Kind.ABSENT, name)


def parents_of(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def absolute_name(namespace: dict[str, Any], name: str, level: int) -> str:
    if not level:
        return name
    package = namespace.get("__package__") or namespace.get("__name__", "").rpartition(".")[0]
    parent = package.rsplit(".", level - 1)[0] if level > 1 else package
    return f"{parent}.{name}" if name else parent


def is_installed(package: str) -> bool:
    """Whether a top-level package comes with Python or was installed, and does not belong to the program."""
    module = sys.modules.get(package)
    if module is not None:
        origin = getattr(module, "__file__", None)
    else:
        spec = importlib.machinery.PathFinder.find_spec(package)
        if spec is None:
            return True  # built in, frozen, or nowhere: the import fails without running anything
        origin = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    return origin is None or os.path.realpath(origin).startswith(_INSTALLED)


def nothing(vm: VM, frame: Frame, instr: Instruction) -> None:
    """NOP, RESUME, PRECALL."""


ops(
    NOP=nothing, RESUME=nothing, PRECALL=nothing, LOAD_FAST_CHECK=LOAD_FAST,
    POP_TOP=lambda vm, frame, instr: frame.stack.pop(),
    PUSH_NULL=lambda vm, frame, instr: frame.stack.append(NULL),
    COPY=lambda vm, frame, instr: frame.stack.append(frame.stack[-instr.arg]),
    LOAD_CONST=lambda vm, frame, instr: frame.stack.append(instr.argval),
    LOAD_CLOSURE=lambda vm, frame, instr: frame.stack.append(frame.locals[instr.arg]),
    LOAD_BUILD_CLASS=load_build_class,
    LOAD_ASSERTION_ERROR=lambda vm, frame, instr: frame.stack.append(AssertionError),
    STORE_GLOBAL=lambda vm, frame, instr: frame.scope.write(instr.argval, frame.stack.pop()),
    LOAD_NAME=lambda vm, frame, instr: push_name_or_global(vm, frame, frame.names, instr.argval),
    LOAD_CLASSDEREF=lambda vm, frame, instr: push_name_or_cell(vm, frame, frame.names, instr.arg),
)
declined("SB011", "IMPORT_STAR", "PRINT_EXPR")
