"""Opcodes of operators, attributes, jumps, calls and iteration."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.code.instruction import Instruction
from stator.code.opcodes import LOOP_END_SKIP, NULL_LAST
from stator.heap.iterators.peekable_iterators import posed_class
from stator.heap.raw_access import instance_dict
from stator.heap.tracker import Box
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp import iteration
from stator.interp.branches.assertions import take_for_granted
from stator.interp.branches.captured_branches import capture_branch, truth_as_symbol
from stator.interp.calls.allowed_calls import refuse_unlisted
from stator.interp.calls.call_protocol import looks_itself, require_plain_names
from stator.interp.frame import NULL, Continuation, Frame, Raised
from stator.interp.lookup import MISSING, find
from stator.interp.machine import Handler, op, ops
from stator.interp.noted_effects import text_piece
from stator.interp.objects import attributes, operators
from stator.interp.objects.assignment import store_attr
from stator.interp.objects.attributes import LIST_ITERATOR, is_empty_table, load_attr, read_instance_dict
from stator.interp.objects.items import contains, delete_item, get_item, set_item
from stator.interp.opcodes.building_opcodes import function_text, take
from stator.interp.services import VM
from stator.shapes.symbolic_values import GRAPH_SCALARS, SYMBOLIC, DeferredText, is_unbacked, specialise

_FROM_GRAPH = SYMBOLIC | {FakeTensor}


@op
def BINARY_OP(vm: VM, frame: Frame, instr: Instruction) -> None:
    right, left = frame.stack.pop(), frame.stack.pop()
    symbol = instr.argval
    inplace = symbol[-1] == "="
    operators.binary(vm, symbol[:-1] if inplace else symbol, left, right, inplace)


@op
def GET_LEN(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.stack.append(vm.call_sync(len, (frame.stack[-1],)))


@op
def IS_OP(vm: VM, frame: Frame, instr: Instruction) -> None:
    right, left = frame.stack.pop(), frame.stack.pop()
    frame.stack.append(operators.identical(vm, left, right) != bool(instr.arg))


@op
def CONTAINS_OP(vm: VM, frame: Frame, instr: Instruction) -> None:
    container, item = frame.stack.pop(), frame.stack.pop()
    contains(vm, container, item, bool(instr.arg))


@op
def UNARY_NOT(vm: VM, frame: Frame, instr: Instruction) -> None:
    symbol = truth_as_symbol(vm, frame.stack[-1]) if type(frame.stack[-1]) is FakeTensor else None
    if symbol is not None:
        frame.stack[-1] = torch.sym_not(symbol)
    else:
        frame.stack.append(not operators.truth(vm, frame.stack.pop()))


@op
def STORE_SUBSCR(vm: VM, frame: Frame, instr: Instruction) -> None:
    key, obj, value = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    set_item(vm, obj, key, value)


@op
def LOAD_ATTR(vm: VM, frame: Frame, instr: Instruction) -> None:
    if instr.flag:
        return LOAD_METHOD(vm, frame, instr)
    obj = frame.stack.pop()
    if frame.program[frame.ip][0] in _TRUTH_JUMPS and is_empty_table(vm, obj, instr.argval):
        frame.stack.append(False)  # the jump asks for no more than that
        return
    load_attr(vm, obj, instr.argval)


@op
def STORE_ATTR(vm: VM, frame: Frame, instr: Instruction) -> None:
    obj, value = frame.stack.pop(), frame.stack.pop()
    store_attr(vm, obj, instr.argval, value)


class _PushWithNull(Continuation):
    """A callable without a receiver, where the NULL comes after it."""

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        frame.stack += (value, NULL)


PUSH_WITH_NULL = _PushWithNull()


@op
def LOAD_METHOD(vm: VM, frame: Frame, instr: Instruction) -> None:
    """Push (function, self) where the attribute is a plain method, else a value without a receiver."""
    obj, name = frame.stack.pop(), instr.argval
    if type(obj) not in GRAPH_SCALARS:
        obj = specialise(obj, f"the method {name}")
    cls = type(obj)
    if cls is not FakeTensor and not is_a(obj, (type, types.ModuleType)) and cls is not super \
            and cls is not types.MethodType and cls not in GRAPH_SCALARS \
            and not (cls is LIST_ITERATOR and posed_class(vm.heap, obj) is not None):
        found = find(vm, cls, name)
        kind = type(found)
        if (kind is types.FunctionType or kind is types.MethodDescriptorType) and attributes.reads_plainly(vm, cls):
            if instance_dict(obj) is None or read_instance_dict(vm, obj, name) is MISSING:
                frame.stack.append(found)
                frame.stack.append(obj)
                return
    if NULL_LAST:
        return load_attr(vm, obj, name, PUSH_WITH_NULL)
    frame.stack.append(NULL)
    load_attr(vm, obj, name)


@op
def JUMP_FORWARD(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.ip = instr.target


@op
def JUMP_BACKWARD(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.ip = instr.target
    vm.tick()


def pop_jump(vm: VM, frame: Frame, instr: Instruction, jump_if: bool) -> None:
    value = frame.stack[-1]
    if type(value) is bool:
        holds = value
    else:
        granted = None
        if type(value) in _FROM_GRAPH:
            granted = take_for_granted(vm, frame, instr, value, jump_if)
            if granted is None and capture_branch(vm, frame, instr, value, jump_if):
                return
        try:
            holds = operators.truth(vm, value) if granted is None else granted
        except Break as stop:
            stop.stop.restored = stop.stop.untouched and vm.frame is frame and granted is None
            raise
    if holds is jump_if:
        frame.ip = instr.target
    frame.stack.pop()


def jump_if_none(frame: Frame, instr: Instruction, wanted: bool) -> None:
    if (frame.stack.pop() is None) is wanted:
        frame.ip = instr.target


def _backward(handler: Any) -> Callable[..., Any]:
    """A conditional jump of 3.11 that closes a loop."""
    def jump(vm: VM, frame: Frame, instr: Instruction) -> None:
        handler(vm, frame, instr)
        vm.tick()
    return jump


def jump_or_pop(vm: VM, frame: Frame, instr: Instruction, jump_if: bool) -> None:
    value = frame.stack[-1]
    if type(value) in _FROM_GRAPH and capture_branch(vm, frame, instr, value, jump_if, keeps=True):
        return
    if operators.truth(vm, value) is jump_if:
        frame.ip = instr.target
    else:
        frame.stack.pop()


@op
def KW_NAMES(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.kwnames = instr.argval


@op
def CALL(vm: VM, frame: Frame, instr: Instruction) -> None:
    names, frame.kwnames = frame.kwnames, ()
    try:
        call(vm, frame, instr.arg, names)
    except Break as stop:
        if stop.stop.restored and vm.frame is frame:
            frame.kwnames = names
        raise


@op
def CALL_KW(vm: VM, frame: Frame, instr: Instruction) -> None:
    names = frame.stack.pop()
    try:
        call(vm, frame, instr.arg, names)
    except Break as stop:
        if stop.stop.restored and vm.frame is frame:
            frame.stack.append(names)
        raise


def call(vm: VM, frame: Frame, count: int, names: tuple[str, ...]) -> None:
    """Call what lies below `count` arguments: (NULL, function), (function, NULL) or (function, receiver)."""
    stack = frame.stack
    args = take(stack, count)
    second, first = stack.pop(), stack.pop()
    kwargs = None
    if names:
        kwargs = dict(zip(names, args[-len(names):], strict=True))
        del args[-len(names):]
    function, receiver = (second, NULL) if first is NULL else (first, second)
    forced = False
    try:
        forced = look_at_arguments(function, args, kwargs)
        if receiver is not NULL:
            args.insert(0, receiver)
        vm.call(function, args, kwargs)
    except Break as stop:
        if stop.stop.untouched and not forced and vm.frame is frame and is_plain_call(vm):
            given = args[len(args) - count + len(names):]
            stack += first, second, *given, *(kwargs or {}).values()
            stop.stop.restored = True
        raise


def is_plain_call(vm: VM) -> bool:
    """Whether nothing stands between a call and its function: no mode, no class, no value to be made ready."""
    return not (vm.modes.active or vm.modes.patched or vm.recorder.classes or vm.heap.unread_met
                or vm.heap.arrays.backed)


def look_at_arguments(function: Any, args: list[Any], kwargs: dict[str, Any] | None) -> bool:
    """Force unread arguments, and return whether there were any; an interpreted function reads its own."""
    forced = False
    given: Any
    for given in (args, kwargs or {}):
        for place, value in enumerate(given) if given is args else given.items():
            if type(value) is Box:
                if looks_itself(function):
                    return forced
                if not forced:
                    refuse_unlisted(function)
                given[place], forced = value.force(), True
    return forced


@op
def CALL_FUNCTION_EX(vm: VM, frame: Frame, instr: Instruction) -> None:
    stack = frame.stack
    named = 1 if instr.arg is None else instr.arg & 1  # since 3.14 keywords or NULL
    if vm.is_python_iterable(stack[-1 - named]):
        return vm.call_own(iteration.listed, (stack.pop(-1 - named),), iteration.Again(named))
    kwargs = stack.pop() if named else None
    kwargs, args = None if kwargs is NULL else kwargs, stack.pop()
    second, first = stack.pop(), stack.pop()
    function = second if first is NULL else first
    if kwargs is not None:
        vm.heap.expose(kwargs)
        kwargs = dict(kwargs)
        require_plain_names(kwargs)
    if type(args) is not tuple or vm.heap.tracker_of(args) is not None:
        if not vm.is_iterable(args):
            raise Raised(TypeError(f"{function_text(vm, function)} argument after * must be an iterable, "
                                   f"not {name_in_errors(type(args))}"))
        args = vm.collect(args)
    vm.call(function, tuple(args), kwargs)


@op
def RETURN_VALUE(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack.pop()
    if type(value) is Box and (frame.parent is not None or frame.outer is not None or frame.generator is not None):
        value = value.force()
    give_back(vm, frame, value)


def give_back(vm: VM, frame: Frame, value: object) -> None:
    if frame.generator is not None:
        return frame.generator.finished(vm, value)
    vm.leave(frame, value)


@op
def FORMAT_VALUE(vm: VM, frame: Frame, instr: Instruction) -> None:
    spec = frame.stack.pop() if instr.arg & 4 else ""
    format_piece(vm, frame, frame.stack.pop(), instr.arg & 3, spec)


def format_piece(vm: VM, frame: Frame, value: object, conversion: int, spec: object) -> None:
    """One replacement field of an f-string: !s, !r and !a are the conversions 1 to 3."""
    if type(value) is FakeTensor or is_unbacked(value) or type(spec) is DeferredText:
        return frame.stack.append(text_piece(vm, value, ("", "s", "r", "a")[conversion], spec))
    if type(value) is numpy.ndarray and not conversion and type(spec) is str and not spec:
        conversion = 1  # an array has no format of its own
    if conversion:
        value = vm.call_sync((str, repr, ascii)[conversion - 1], (value,))
    if type(value) is str and not spec:
        frame.stack.append(value)
    else:
        frame.stack.append(vm.call_sync(format, (value, spec)))


_JUMPS: dict[str, Handler] = {
    "FALSE": lambda vm, frame, instr: pop_jump(vm, frame, instr, False),
    "TRUE": lambda vm, frame, instr: pop_jump(vm, frame, instr, True),
    "NONE": lambda vm, frame, instr: jump_if_none(frame, instr, True),
    "NOT_NONE": lambda vm, frame, instr: jump_if_none(frame, instr, False),
}
_TRUTH_JUMPS = (_JUMPS["FALSE"], _JUMPS["TRUE"])
for _condition, _handler in _JUMPS.items():
    ops(**{f"POP_JUMP_IF_{_condition}": _handler, f"POP_JUMP_FORWARD_IF_{_condition}": _handler,
           f"POP_JUMP_BACKWARD_IF_{_condition}": _backward(_handler)})
ops(
    COMPARE_OP=lambda vm, frame, instr: operators.compare(vm, instr.argval, *take(frame.stack, 2)),
    UNARY_POSITIVE=lambda vm, frame, instr: operators.unary(vm, "+", frame.stack.pop()),
    UNARY_NEGATIVE=lambda vm, frame, instr: operators.unary(vm, "-", frame.stack.pop()),
    UNARY_INVERT=lambda vm, frame, instr: operators.unary(vm, "~", frame.stack.pop()),
    BINARY_SUBSCR=lambda vm, frame, instr: get_item(vm, *take(frame.stack, 2)),
    DELETE_SUBSCR=lambda vm, frame, instr: delete_item(vm, *take(frame.stack, 2)),
    DELETE_ATTR=lambda vm, frame, instr: store_attr(vm, frame.stack.pop(), instr.argval, MISSING),
    JUMP_BACKWARD_NO_INTERRUPT=JUMP_FORWARD,
    JUMP_IF_FALSE_OR_POP=lambda vm, frame, instr: jump_or_pop(vm, frame, instr, False),
    JUMP_IF_TRUE_OR_POP=lambda vm, frame, instr: jump_or_pop(vm, frame, instr, True),
    GET_ITER=lambda vm, frame, instr: vm.get_iter(frame.stack.pop()),
    FOR_ITER=lambda vm, frame, instr: vm.for_iter(frame, frame.stack[-1], instr.target + LOOP_END_SKIP),
)
