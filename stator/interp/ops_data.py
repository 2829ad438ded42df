"""Opcodes that move values: stack, constants, locals, cells, names, globals, imports, building containers."""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.code.handover import handed_over
from stator.code.opcodes import NULL_LAST
from stator.guards.guard import Kind
from stator.heap.box import Box
from stator.interp import symbols
from stator.interp.attributes import load_attr
from stator.interp.consumers import Again, listed, some_listed
from stator.interp.frame import NULL, UNBOUND, Continuation, Frame, Raised
from stator.interp.imports import refuse_loading
from stator.interp.lookup import MISSING, find
from stator.interp.machine import also, declined, op
from stator.interp.moments import joined
from stator.kinds import is_a
from stator.shapes.values import UNREAD, unread
from stator.source import Key, Pinned

# ---------------------------------------------------------------------- nothing at all


@op
def NOP(vm: Any, frame: Frame, instr: Any) -> None:
    pass


@op
def RESUME(vm: Any, frame: Frame, instr: Any) -> None:
    pass


@op
def PRECALL(vm: Any, frame: Frame, instr: Any) -> None:
    pass


# ---------------------------------------------------------------------- stack


@op
def POP_TOP(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.pop()


@op
def PUSH_NULL(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(NULL)


@op
def SWAP(vm: Any, frame: Frame, instr: Any) -> None:
    stack, n = frame.stack, instr.arg
    stack[-1], stack[-n] = stack[-n], stack[-1]


@op
def COPY(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(frame.stack[-instr.arg])


@op
def LOAD_CONST(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(instr.argval)


# ---------------------------------------------------------------------- locals and cells


@op
def LOAD_FAST(vm: Any, frame: Frame, instr: Any) -> None:
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


also("LOAD_FAST_CHECK", LOAD_FAST)


@op
def STORE_FAST(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    frame.locals[instr.arg] = UNBOUND if value is NULL else value  # NULL: what LOAD_FAST_AND_CLEAR found unbound


@op
def DELETE_FAST(vm: Any, frame: Frame, instr: Any) -> None:
    if frame.locals[instr.arg] is UNBOUND:
        raise unbound_local(frame, instr.arg)
    frame.locals[instr.arg] = UNBOUND


@op
def MAKE_CELL(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.locals[instr.arg]
    cell = types.CellType() if value is UNBOUND else types.CellType(value)
    frame.locals[instr.arg] = cell


@op
def COPY_FREE_VARS(vm: Any, frame: Frame, instr: Any) -> None:
    assert frame.func is not None
    for slot, cell in zip(frame.unit.free_slots, vm.closure_of(frame.func), strict=True):
        frame.locals[slot] = cell


@op
def LOAD_CLOSURE(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(frame.locals[instr.arg])


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
        return Raised(NameError(
            f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"))
    return unbound_local(frame, slot)


@op
def LOAD_DEREF(vm: Any, frame: Frame, instr: Any) -> None:
    value = read_cell(frame, instr.arg)
    if value is UNBOUND:
        raise unbound_cell(frame, instr.arg)
    frame.stack.append(value)


@op
def LOAD_CLASSDEREF(vm: Any, frame: Frame, instr: Any) -> None:
    name = frame.unit.local_names[instr.arg]
    value = read_name(vm, frame.names, name)
    if value is MISSING:
        value = read_cell(frame, instr.arg)
        if value is UNBOUND:
            raise unbound_cell(frame, instr.arg)
    frame.stack.append(value)


@op
def STORE_DEREF(vm: Any, frame: Frame, instr: Any) -> None:
    frame.locals[instr.arg].cell_contents = frame.stack.pop()


@op
def DELETE_DEREF(vm: Any, frame: Frame, instr: Any) -> None:
    if read_cell(frame, instr.arg) is UNBOUND:
        raise unbound_cell(frame, instr.arg)
    del frame.locals[instr.arg].cell_contents


# ---------------------------------------------------------------------- names and globals


def read_global(vm: Any, frame: Frame, name: str) -> Any:
    value = frame.scope.read(name)
    if value is MISSING:
        value = vm.heap.scope(builtins.__dict__).read(name)
    return value


def name_error(name: str) -> Raised:
    return Raised(NameError(f"name '{name}' is not defined", name=name))


@op
def LOAD_GLOBAL(vm: Any, frame: Frame, instr: Any) -> None:
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
def STORE_GLOBAL(vm: Any, frame: Frame, instr: Any) -> None:
    frame.scope.write(instr.argval, frame.stack.pop())


@op
def DELETE_GLOBAL(vm: Any, frame: Frame, instr: Any) -> None:
    if frame.scope.read(instr.argval) is MISSING:
        raise name_error(instr.argval)
    frame.scope.write(instr.argval, MISSING)


def read_name(vm: Any, names: Any, name: str) -> Any:
    """A name in a class body's namespace, which a metaclass's `__prepare__` may have made."""
    if type(names) is dict:
        return names.get(name, MISSING)
    try:
        return vm.native(type(names).__getitem__, (names, name))
    except Raised as raised:
        if not is_a(raised.exc, KeyError):
            raise
        return MISSING


@op
def LOAD_NAME(vm: Any, frame: Frame, instr: Any) -> None:
    value = read_name(vm, frame.names, instr.argval)
    if value is MISSING:
        value = read_global(vm, frame, instr.argval)
        if value is MISSING:
            raise name_error(instr.argval)
    frame.stack.append(value)


@op
def STORE_NAME(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    if type(frame.names) is dict:
        frame.names[instr.argval] = value
    else:
        vm.native(type(frame.names).__setitem__, (frame.names, instr.argval, value))


@op
def DELETE_NAME(vm: Any, frame: Frame, instr: Any) -> None:
    try:
        del frame.names[instr.argval]
    except KeyError:
        raise name_error(instr.argval) from None


@op
def SETUP_ANNOTATIONS(vm: Any, frame: Frame, instr: Any) -> None:
    if read_name(vm, frame.names, "__annotations__") is MISSING:
        frame.names["__annotations__"] = {}


@op
def LOAD_BUILD_CLASS(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(builtins.__build_class__)


@op
def LOAD_ASSERTION_ERROR(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(AssertionError)


# ---------------------------------------------------------------------- imports


@op
def IMPORT_NAME(vm: Any, frame: Frame, instr: Any) -> None:
    fromlist, level = frame.stack.pop(), frame.stack.pop()
    module = import_module(vm, frame, instr.argval, fromlist, level)
    frame.stack.append(module)


def import_module(vm: Any, frame: Frame, name: str, fromlist: Any, level: int) -> Any:
    """`__import__`; which module a name leads to is guarded in sys.modules."""
    namespace = frame.scope.namespace
    if vm.heap.scope(builtins.__dict__).read("__import__") is not builtins_import:
        raise Break("SB001", "builtins.__import__ was replaced")
    refuse_loading(vm, namespace, name, fromlist, level)
    module = vm.native_unhooked(builtins_import, (name, namespace, None, fromlist, level))
    full = getattr(module, "__name__", None)
    if full is not None and sys.modules.get(full) is module:
        vm.heap.guard(Key(Pinned(sys.modules), full), Kind.ID, module)
    return module


builtins_import = builtins.__import__


class SubmoduleFallback(Continuation):
    """`from package import submodule`, where the package has no such attribute yet."""

    __slots__ = ("module", "name")

    def __init__(self, module: Any, name: str) -> None:
        self.module, self.name = module, name

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        frame.stack.append(value)

    def raised(self, vm: Any, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, AttributeError):
            return False
        package = getattr(self.module, "__name__", "<unknown module name>")
        found = sys.modules.get(f"{package}.{self.name}")
        if found is None:
            origin = getattr(self.module, "__file__", None) or "unknown location"
            raise Raised(ImportError(f"cannot import name {self.name!r} from {package!r} ({origin})",
                                     name=package, path=getattr(self.module, "__file__", None)))
        vm.heap.guard(Key(Pinned(sys.modules), f"{package}.{self.name}"), Kind.ID, found)
        frame.stack.append(found)
        return True


@op
def IMPORT_FROM(vm: Any, frame: Frame, instr: Any) -> None:
    module = frame.stack[-1]
    load_attr(vm, module, instr.argval, SubmoduleFallback(module, instr.argval))


declined("SB011", "IMPORT_STAR", "PRINT_EXPR")


# ---------------------------------------------------------------------- building


def take(stack: list[Any], count: int) -> list[Any]:
    if count == 0:
        return []
    items = stack[-count:]
    del stack[-count:]
    return items


@op
def BUILD_TUPLE(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(tuple(take(frame.stack, instr.arg)))


@op
def BUILD_LIST(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(take(frame.stack, instr.arg))


@op
def BUILD_SET(vm: Any, frame: Frame, instr: Any) -> None:
    items = take(frame.stack, instr.arg)
    for item in items:
        vm.heap.expose_deep(item)
    result: set[Any] = set()
    for item in items:
        vm.native(set.add, (result, symbols.specialise_deep(vm, item)))
    frame.stack.append(result)


@op
def BUILD_MAP(vm: Any, frame: Frame, instr: Any) -> None:
    items = take(frame.stack, 2 * instr.arg)
    result: dict[Any, Any] = {}
    for i in range(0, len(items), 2):
        store_key(vm, result, items[i], items[i + 1])
    frame.stack.append(result)


def store_key(vm: Any, mapping: dict[Any, Any], key: Any, value: Any) -> None:
    if type(key) is str or type(key) is int:
        mapping[key] = value
    else:
        vm.heap.expose_deep(key)
        vm.native(dict.__setitem__, (mapping, symbols.specialise_deep(vm, key), value))


@op
def BUILD_CONST_KEY_MAP(vm: Any, frame: Frame, instr: Any) -> None:
    keys = frame.stack.pop()
    frame.stack.append(dict(zip(keys, take(frame.stack, instr.arg), strict=True)))


@op
def BUILD_STRING(vm: Any, frame: Frame, instr: Any) -> None:
    parts = take(frame.stack, instr.arg)
    frame.stack.append(joined(parts))


@op
def BUILD_SLICE(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(slice(*take(frame.stack, instr.arg)))


@op
def LIST_TO_TUPLE(vm: Any, frame: Frame, instr: Any) -> None:
    items = frame.stack.pop()
    vm.heap.expose(items)  # a list that was begun before a graph break is one from outside
    frame.stack.append(tuple(items))


@op
def LIST_APPEND(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    writable(frame.stack[-instr.arg]).append(value)


@op
def SET_ADD(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    vm.heap.expose_deep(value)
    vm.native(set.add, (writable(frame.stack[-instr.arg]), symbols.specialise_deep(vm, value)))


@op
def MAP_ADD(vm: Any, frame: Frame, instr: Any) -> None:
    value, key = frame.stack.pop(), frame.stack.pop()
    store_key(vm, writable(frame.stack[-instr.arg]), key, value)


def writable(target: Any) -> Any:
    """A container that a display fills: begun before a graph break, it may be one of which nothing is known."""
    if type(target) in UNREAD:
        raise unread(target)
    return target


@op
def LIST_EXTEND(vm: Any, frame: Frame, instr: Any) -> None:
    iterable = frame.stack.pop()
    target = writable(frame.stack[-instr.arg])
    if type(iterable) is not FakeTensor and not vm.is_iterable(iterable):
        raise Raised(TypeError(f"Value after * must be an iterable, not {type(iterable).__name__}"))
    if vm.is_python_iterable(iterable):
        return vm.call_own(listed, (iterable,), Again())
    target.extend(vm.collect(iterable))


@op
def SET_UPDATE(vm: Any, frame: Frame, instr: Any) -> None:
    iterable = frame.stack.pop()
    if vm.is_python_iterable(iterable):
        return vm.call_own(listed, (iterable,), Again())
    items = vm.collect(iterable)
    target = writable(frame.stack[-instr.arg])
    for item in items:
        vm.heap.expose_deep(item)
        vm.native(set.add, (target, symbols.specialise_deep(vm, item)))


@op
def DICT_UPDATE(vm: Any, frame: Frame, instr: Any) -> None:
    mapping = frame.stack.pop()
    vm.heap.expose(mapping)
    if find(vm, type(mapping), "keys") is MISSING:
        raise Raised(TypeError(f"'{type(mapping).__name__}' object is not a mapping"))
    vm.native(dict.update, (frame.stack[-instr.arg], mapping))


def function_text(function: Any) -> str:
    """How CPython names a callable in a TypeError, without running code of the user's."""
    if type(function) is types.MethodType:
        return function_text(function.__func__)
    if type(function) not in (types.FunctionType, types.BuiltinFunctionType) and not is_a(function, type):
        return f"{type(function).__name__} object"
    module = function.__module__
    return f"{module}.{function.__qualname__}()" if module not in (None, "builtins") else f"{function.__qualname__}()"


@op
def DICT_MERGE(vm: Any, frame: Frame, instr: Any) -> None:
    mapping = frame.stack.pop()
    target = frame.stack[-instr.arg]
    vm.heap.expose(mapping)
    vm.heap.expose(target)
    function = frame.stack[-(2 + instr.arg)]
    shown = function_text(function)
    if type(mapping) is not dict:
        if find(vm, type(mapping), "keys") is MISSING:
            raise Raised(TypeError(f"{shown} argument after ** must be a mapping, not {type(mapping).__name__}"))
        copy: dict[Any, Any] = {}
        vm.native(dict.update, (copy, mapping))
        mapping = copy
    for key, value in mapping.items():
        if key in target:
            raise Raised(TypeError(f"{shown} got multiple values for keyword argument '{key}'"))
        target[key] = value


@op
def MAKE_FUNCTION(vm: Any, frame: Frame, instr: Any) -> None:
    stack, flags = frame.stack, instr.arg or 0  # since 3.13 SET_FUNCTION_ATTRIBUTE says the rest
    code = stack.pop()
    closure = stack.pop() if flags & 8 else None
    annotations = stack.pop() if flags & 4 else None
    kwdefaults = stack.pop() if flags & 2 else None
    defaults = stack.pop() if flags & 1 else None
    function = make_function(vm, frame, code, closure)
    function.__defaults__ = defaults
    if kwdefaults is not None:
        function.__kwdefaults__ = kwdefaults
    if annotations is not None:
        set_annotations(function, annotations)
    stack.append(function)


def make_function(vm: Any, frame: Frame, code: types.CodeType, closure: Any) -> types.FunctionType:
    """A function of the trace, in the frame's own globals; its cells may be given later."""
    if closure is None and code.co_freevars:
        closure = tuple(types.CellType() for _ in code.co_freevars)
    function = types.FunctionType(code, frame.scope.namespace, code.co_name, None, closure)
    function.__qualname__ = code.co_qualname
    module = frame.scope.read("__name__")
    function.__module__ = None if module is MISSING else module  # type: ignore[assignment]  # CPython allows None
    vm.fresh[id(function)] = function
    return function


def set_annotations(function: types.FunctionType, annotations: Any) -> None:
    function.__annotations__ = dict(zip(annotations[::2], annotations[1::2], strict=True)) \
        if is_a(annotations, tuple) else annotations


# ---------------------------------------------------------------------- unpacking


@op
def UNPACK_SEQUENCE(vm: Any, frame: Frame, instr: Any) -> None:
    value, count = frame.stack.pop(), instr.arg
    if type(value) is tuple or type(value) is list:
        vm.heap.expose_length(value)
        items = [item.force() if type(item) is Box else item for item in value] if len(value) == count else value
    else:
        if type(value) is not FakeTensor and not vm.is_iterable(value):
            raise Raised(TypeError(f"cannot unpack non-iterable {type(value).__name__} object"))
        if vm.is_python_iterable(value):
            return vm.call_own(some_listed, (value, count + 1), Again())
        items = vm.take(value, count + 1)
    if len(items) < count:
        raise Raised(ValueError(f"not enough values to unpack (expected {count}, got {len(items)})"))
    if len(items) > count:
        raise Raised(ValueError(f"too many values to unpack (expected {count})"))
    frame.stack.extend(reversed(items))


@op
def UNPACK_EX(vm: Any, frame: Frame, instr: Any) -> None:
    before, after = instr.arg & 0xFF, instr.arg >> 8
    value = frame.stack.pop()
    if type(value) is not FakeTensor and not vm.is_iterable(value):
        raise Raised(TypeError(f"cannot unpack non-iterable {type(value).__name__} object"))
    if vm.is_python_iterable(value):
        return vm.call_own(listed, (value,), Again())
    items = vm.collect(value)
    if len(items) < before + after:
        least = f"at least {before + after}" if after else f"at least {before}"
        raise Raised(ValueError(f"not enough values to unpack (expected {least}, got {len(items)})"))
    middle = items[before:len(items) - after]
    tail = items[len(items) - after:] if after else []
    frame.stack.extend(reversed([*items[:before], middle, *tail]))
