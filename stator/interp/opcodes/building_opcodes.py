"""Opcodes that build and unpack containers, and make functions."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator.code.instruction import Instruction
from stator.heap.identity_facts import note_compared
from stator.heap.tracker import Box
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.frame import NULL, Frame, Raised
from stator.interp.iteration import Again, listed, some_listed
from stator.interp.lookup import MISSING, find
from stator.interp.machine import op, ops
from stator.interp.noted_effects import joined
from stator.interp.numbers import symbolic_numbers
from stator.interp.services import VM
from stator.shapes.symbolic_values import UNREAD, unread


def take(stack: list[Any], count: int) -> list[Any]:
    start = len(stack) - count
    items = stack[start:]
    del stack[start:]
    return items


@op
def BUILD_SET(vm: VM, frame: Frame, instr: Instruction) -> None:
    result: set[Any] = set()
    for item in take(frame.stack, instr.arg):
        put(vm, result, item)
    frame.stack.append(result)


def put(vm: VM, target: set[Any], item: object) -> None:
    if type(item) is str and id(target) not in vm.heap.by_standin:
        vm.native(set.add, (target, item))
        return
    vm.heap.expose_deep(item)
    note_compared(vm.heap, (target, item))
    vm.native(set.add, (target, symbolic_numbers.specialise_deep(vm, item)))


@op
def BUILD_MAP(vm: VM, frame: Frame, instr: Instruction) -> None:
    items = take(frame.stack, 2 * instr.arg)
    result: dict[Any, Any] = {}
    for i in range(0, len(items), 2):
        store_key(vm, result, items[i], items[i + 1])
    frame.stack.append(result)


def store_key(vm: VM, mapping: dict[Any, Any], key: object, value: object) -> None:
    if type(key) is str or type(key) is int:
        mapping[key] = value
    else:
        vm.heap.expose_deep(key)
        note_compared(vm.heap, (mapping, key))
        vm.native(dict.__setitem__, (mapping, symbolic_numbers.specialise_deep(vm, key), value))


@op
def BUILD_CONST_KEY_MAP(vm: VM, frame: Frame, instr: Instruction) -> None:
    keys = frame.stack.pop()
    frame.stack.append(dict(zip(keys, take(frame.stack, instr.arg), strict=True)))


@op
def LIST_TO_TUPLE(vm: VM, frame: Frame, instr: Instruction) -> None:
    items = frame.stack.pop()
    vm.heap.expose(items)  # a list that was begun before a graph break is one from outside
    frame.stack.append(tuple(items))


@op
def LIST_APPEND(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack.pop()
    writable(vm, frame.stack[-instr.arg]).append(value)


@op
def SET_ADD(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack.pop()
    put(vm, writable(vm, frame.stack[-instr.arg]), value)


@op
def MAP_ADD(vm: VM, frame: Frame, instr: Instruction) -> None:
    value, key = frame.stack.pop(), frame.stack.pop()
    store_key(vm, writable(vm, frame.stack[-instr.arg]), key, value)


def writable(vm: VM, target: object) -> Any:
    """A container that a display fills: begun before a graph break, it may be one of which nothing is known."""
    if type(target) in UNREAD:
        raise unread(target)
    vm.heap.note_write(target)
    return target


@op
def LIST_EXTEND(vm: VM, frame: Frame, instr: Instruction) -> None:
    iterable = frame.stack.pop()
    target = writable(vm, frame.stack[-instr.arg])
    if type(iterable) is not FakeTensor and not vm.is_iterable(iterable):
        raise Raised(TypeError(f"Value after * must be an iterable, not {name_in_errors(type(iterable))}"))
    if vm.is_python_iterable(iterable):
        return vm.call_own(listed, (iterable,), Again(0))
    target.extend(vm.starred(iterable))


@op
def SET_UPDATE(vm: VM, frame: Frame, instr: Instruction) -> None:
    iterable = frame.stack.pop()
    if vm.is_python_iterable(iterable):
        return vm.call_own(listed, (iterable,), Again(0))
    if type(iterable) in (set, frozenset, dict):  # how large they are decides the order, as much as their own
        target = writable(vm, frame.stack[-instr.arg])
        vm.heap.expose_deep(iterable)
        note_compared(vm.heap, (target, iterable))
        vm.native(set.update, (target, iterable))
        return
    items = vm.collect(iterable)
    target = writable(vm, frame.stack[-instr.arg])
    for item in items:
        put(vm, target, item)


@op
def DICT_UPDATE(vm: VM, frame: Frame, instr: Instruction) -> None:
    mapping = frame.stack.pop()
    vm.heap.expose(mapping)
    if find(vm, type(mapping), "keys") is MISSING:
        raise Raised(TypeError(f"'{name_in_errors(type(mapping))}' object is not a mapping"))
    note_compared(vm.heap, (frame.stack[-instr.arg], mapping))
    vm.native(dict.update, (frame.stack[-instr.arg], mapping))


def function_text(vm: VM, function: Callable[..., Any]) -> str:
    """How CPython names a callable in a TypeError: by its names, or as `str` shows an object that has none."""
    name = vm.optional_attr(function, "__qualname__")
    if name is vm.MISSING:
        return vm.call_sync(str, (function,))
    module = vm.optional_attr(function, "__module__")
    return f"{name}()" if module is vm.MISSING or module is None or module == "builtins" else f"{module}.{name}()"


@op
def DICT_MERGE(vm: VM, frame: Frame, instr: Instruction) -> None:
    mapping = frame.stack.pop()
    target = frame.stack[-instr.arg]
    vm.heap.expose(mapping)
    vm.heap.expose(target)
    vm.heap.note_write(target)
    function = next(item for item in frame.stack[-(2 + instr.arg)::-1] if item is not NULL)  # since 3.13 below a NULL
    if type(mapping) is not dict:
        if find(vm, type(mapping), "keys") is MISSING:
            raise Raised(TypeError(f"{function_text(vm, function)} argument after ** must be a mapping, "
                                   f"not {name_in_errors(type(mapping))}"))
        vm.guard_special_methods(mapping)
        copy: dict[Any, Any] = {}
        vm.native(dict.update, (copy, mapping))
        mapping = copy
    for key, value in mapping.items():
        if key in target:
            raise Raised(TypeError(f"{function_text(vm, function)} got multiple values for keyword argument "
                                   f"'{key}'"))
        target[key] = value


@op
def MAKE_FUNCTION(vm: VM, frame: Frame, instr: Instruction) -> None:
    stack, flags = frame.stack, instr.arg or 0  # since 3.13 SET_FUNCTION_ATTRIBUTE says the rest
    code = stack.pop()
    function = make_function(vm, frame, code, stack.pop() if flags & 8 else None)
    for flag in (4, 2, 1):
        if flags & flag:
            set_attribute(function, flag, stack.pop())
    stack.append(function)


def make_function(vm: VM, frame: Frame, code: types.CodeType, closure: Any) -> types.FunctionType:
    """A function of the trace, in the frame's own globals; its cells may be given later."""
    if closure is None and code.co_freevars:
        closure = tuple(types.CellType() for _ in code.co_freevars)
    function = types.FunctionType(code, frame.scope.namespace, code.co_name, None, closure)
    function.__qualname__ = code.co_qualname
    module = frame.scope.read("__name__")
    function.__module__ = None if module is MISSING else module  # type: ignore[assignment]  # CPython allows None
    vm.fresh[id(function)] = function
    return function


def set_attribute(function: types.FunctionType, flag: int, value: Any) -> None:
    """Set `__annotate__`, annotations, keyword defaults or defaults: the flags 16, 4, 2, 1 of MAKE_FUNCTION."""
    if flag == 16:
        setattr(function, "__annotate__", value)
    elif flag == 4:
        function.__annotations__ = dict(zip(value[::2], value[1::2], strict=True)) if is_a(value, tuple) else value
    elif flag == 2:
        function.__kwdefaults__ = value
    else:
        function.__defaults__ = value


def unpacked(vm: VM, value: object, most: int | None) -> list[Any] | None:
    """Items to unpack, at most `most`; None where an interpreted loop lists them first."""
    if type(value) is not FakeTensor and not vm.is_iterable(value):
        raise Raised(TypeError(f"cannot unpack non-iterable {name_in_errors(type(value))} object"))
    if not vm.is_python_iterable(value):
        return vm.collect(value) if most is None else vm.take(value, most)
    function, args = (listed, (value,)) if most is None else (some_listed, (value, most))
    vm.call_own(function, args, Again(0))  # type: ignore[arg-type]
    return None


@op
def UNPACK_SEQUENCE(vm: VM, frame: Frame, instr: Instruction) -> None:
    value, count = frame.stack.pop(), instr.arg
    items: Any
    if type(value) is tuple or type(value) is list:
        vm.heap.expose_length(value)
        items = [item.force() if type(item) is Box else item for item in value] if len(value) == count else value
    elif (items := unpacked(vm, value, count + 1)) is None:
        return
    if len(items) < count:
        raise Raised(ValueError(f"not enough values to unpack (expected {count}, got {len(items)})"))
    if len(items) > count:
        raise Raised(ValueError(f"too many values to unpack (expected {count})"))
    frame.stack.extend(reversed(items))


@op
def UNPACK_EX(vm: VM, frame: Frame, instr: Instruction) -> None:
    before, after = instr.arg & 0xFF, instr.arg >> 8
    items = unpacked(vm, frame.stack.pop(), None)
    if items is None:
        return
    if len(items) < before + after:
        raise Raised(ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(items)})"))
    end = len(items) - after
    frame.stack.extend(reversed([*items[:before], items[before:end], *items[end:]]))


ops(
    BUILD_TUPLE=lambda vm, frame, instr: frame.stack.append(tuple(take(frame.stack, instr.arg))),
    BUILD_LIST=lambda vm, frame, instr: frame.stack.append(take(frame.stack, instr.arg)),
    BUILD_SLICE=lambda vm, frame, instr: frame.stack.append(slice(*take(frame.stack, instr.arg))),
    BUILD_STRING=lambda vm, frame, instr: frame.stack.append(joined(take(frame.stack, instr.arg))),
)
