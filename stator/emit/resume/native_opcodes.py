"""One instruction, run as plain Python.   BINARY_OP + on (a, b)  ->  (0, [a + b])

The unsupported instruction of a graph break runs here, on real objects, between two captured segments.  The answer
says by which exit control leaves the instruction (0: falls through, 1: jumps) and what it pushes.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stator.code.instruction import Instruction
from stator.code.intrinsics import intrinsic
from stator.code.opcodes import LOOP_END_SKIP, NULL_LAST
from stator.code.stack_effects import pops
from stator.emit.resume.native_code import SlotKind
from stator.interp.frame import NULL
from stator.interp.objects.operators import BINARY, COMPARE, UNARY

V, N = SlotKind.VALUE, SlotKind.NULL
_CALLABLE = (V, N) if NULL_LAST else (N, V)  # something to call, without a receiver
Outcome = tuple[int, list[Any]]
Invoke = Callable[..., Any]  # how a function of the program is called


@dataclass(frozen=True)
class Exit:
    """One way out of an instruction: where control goes and what kinds of values were pushed."""

    index: int
    pushes: tuple[SlotKind, ...]


@dataclass(frozen=True)
class NativeForm:
    """A step as one call or one branch, which `_core.NativeStep` runs without a Python frame."""

    callee: Callable[..., Any] | None = None  # None: the first operand
    names: tuple[str, ...] = ()  # of the last operands
    jumps_on: bool | None = None  # the truth of the operand that leads to the second exit; None: a call


@dataclass(frozen=True)
class Step:
    """How to run one instruction: how many operands it takes from the stack, and its exits."""

    pops: int
    run: Callable[[list[Any], Invoke], Outcome]
    exits: tuple[Exit, ...]
    form: NativeForm | None = None


def plan_step(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step | None:
    """The step of an instruction, or None where only the whole frame can run it natively."""
    planner = _PLANNERS.get(instr.opname)
    return None if planner is None else planner(instr, kwnames, namespace)


def _step(instr: Instruction, run: Callable[[list[Any], Invoke], Outcome], *exits: Exit,
          form: NativeForm | None = None) -> Step:
    """A step that takes its operands as `code/stack_effects` declares."""
    return Step(pops(instr.opname, instr.arg or 0), run, exits, form)


def _simple(function: Callable[..., Any], instr: Instruction) -> Step:
    """An instruction that replaces its operands by one value."""
    return _step(instr, lambda operands, invoke: (0, [invoke(function, *operands)]), Exit(instr.index + 1, (V,)),
                 form=NativeForm(function))


def _statement(function: Callable[..., Any], instr: Instruction) -> Step:
    """An instruction that only does something."""
    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        invoke(function, *operands)
        return 0, []
    return _step(instr, run, Exit(instr.index + 1, ()), form=NativeForm(function))


def _binary(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    symbol = instr.argval
    inplace = symbol[-1] == "=" and symbol not in BINARY
    plain, in_place, _ = BINARY[symbol[:-1] if inplace else symbol]
    return _simple(in_place if inplace else plain, instr)


def _compare(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    return _simple(COMPARE[instr.argval][0], instr)


def _contains(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    if instr.arg:
        return _simple(lambda item, container: item not in container, instr)
    return _simple(lambda item, container: item in container, instr)


def _unary(symbol: str) -> Callable[..., Any]:
    return lambda instr, kwnames, namespace: _simple(UNARY[symbol][0], instr)


def _function_of(operands: list[Any]) -> tuple[Any, list[Any]]:
    """What is called and with what: below the arguments are (NULL, f), (f, NULL) or (f, receiver)."""
    first, second, *args = operands
    if first is NULL:
        return second, args
    return first, args if second is NULL else [second, *args]


def _call_kw(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        function, args = _function_of(operands[:-1])
        named = len(operands[-1])
        return 0, [invoke(function, *args[:-named], **dict(zip(operands[-1], args[-named:], strict=True)))]
    return _step(instr, run, Exit(instr.index + 1, (V,)))


def _call(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    named = len(kwnames)

    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        function, args = _function_of(operands)
        if not named:
            return 0, [invoke(function, *args)]
        return 0, [invoke(function, *args[:-named], **dict(zip(kwnames, args[-named:], strict=True)))]
    return _step(instr, run, Exit(instr.index + 1, (V,)), form=NativeForm(names=kwnames))


def _call_ex(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        function, (args, *kwargs) = _function_of(operands)
        return 0, [invoke(function, *args, **(kwargs[0] if kwargs else {}))]
    return _step(instr, run, Exit(instr.index + 1, (V,)))


def _load_attr(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    name = instr.argval
    pushes = _CALLABLE if instr.flag else (V,)
    return _step(instr, lambda operands, invoke: (0, [invoke(getattr, operands[0], name)]),
                 Exit(instr.index + 1, pushes))


def _load_method(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    name = instr.argval
    return _step(instr, lambda operands, invoke: (0, [invoke(getattr, operands[0], name)]),
                 Exit(instr.index + 1, _CALLABLE))


def _load_super_attr(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    name, explicit = instr.argval, bool((instr.arg or 0) & 2)

    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        function, *found = operands
        made = invoke(function, *found) if function is super or explicit else invoke(function)
        return 0, [invoke(getattr, made, name)]
    return _step(instr, run, Exit(instr.index + 1, _CALLABLE if instr.flag else (V,)))


def _store_attr(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    name = instr.argval
    return _statement(lambda value, obj: setattr(obj, name, value), instr)


def _delete_attr(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    name = instr.argval
    return _statement(lambda obj: delattr(obj, name), instr)


def _store_subscr(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    return _statement(lambda value, obj, key: operator.setitem(obj, key, value), instr)


def _store_slice(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    return _statement(lambda value, obj, start, stop: operator.setitem(obj, slice(start, stop), value), instr)


def _intrinsic(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    return _simple(intrinsic(instr.argval), instr)


def _convert(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    return _simple((str, repr, ascii)[(instr.arg or 1) - 1], instr)


def _delete_subscr(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    return _statement(operator.delitem, instr)


def _load_global(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    name = instr.argval

    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        try:
            return 0, [namespace[name]]
        except KeyError:
            pass
        try:
            return 0, [getattr(builtins, name)]
        except AttributeError:
            raise NameError(f"name '{name}' is not defined", name=name) from None
    return _step(instr, run, Exit(instr.index + 1, _CALLABLE if instr.flag else (V,)))


def _jump_if(wanted: bool) -> Callable[..., Any]:
    def plan(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
        def run(operands: list[Any], invoke: Invoke) -> Outcome:
            return (1 if bool(operands[0]) is wanted else 0), []
        return _step(instr, run, Exit(instr.index + 1, ()), Exit(instr.target or 0, ()),
                     form=NativeForm(jumps_on=wanted))
    return plan


def _jump_or_pop(wanted: bool) -> Callable[..., Any]:
    def plan(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
        def run(operands: list[Any], invoke: Invoke) -> Outcome:
            return (1, operands) if bool(operands[0]) is wanted else (0, [])
        return _step(instr, run, Exit(instr.index + 1, ()), Exit(instr.target or 0, (V,)))
    return plan


_DONE = object()


def _for_iter(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        value = invoke(next, operands[0], _DONE)
        return (1, []) if value is _DONE else (0, [operands[0], value])
    return _step(instr, run, Exit(instr.index + 1, (V, V)), Exit((instr.target or 0) + LOOP_END_SKIP, ()))


def _unpack(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    count = instr.arg or 0
    names = [f"v{i}" for i in range(count)]
    function = _made(f"def unpack(value):\n    [{', '.join(names)}] = value\n    return [{', '.join(reversed(names))}]")
    return _step(instr, lambda operands, invoke: (0, function(operands[0])), Exit(instr.index + 1, (V,) * count))


def _unpack_ex(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    before, after = (instr.arg or 0) & 0xFF, (instr.arg or 0) >> 8
    names = [f"v{i}" for i in range(before)] + ["rest"] + [f"w{i}" for i in range(after)]
    target = ", ".join(f"*{name}" if name == "rest" else name for name in names)
    function = _made(f"def unpack(value):\n    [{target}] = value\n    return [{', '.join(reversed(names))}]")
    return _step(instr, lambda operands, invoke: (0, function(operands[0])), Exit(instr.index + 1, (V,) * len(names)))


def _made(source: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(source, namespace)  # noqa: S102  our own text
    return namespace["unpack"]


def _format(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    flags = instr.arg or 0
    convert = (None, str, repr, ascii)[flags & 3]

    def run(value: object, spec: str = "") -> str:
        return format(value if convert is None else convert(value), spec)
    return _simple(run, instr)


def _import_name(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    name = instr.argval
    return _simple(lambda level, fromlist: builtins.__import__(name, namespace, None, fromlist, level), instr)


def _import_from(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    name = instr.argval

    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        module = operands[0]
        try:
            return 0, [module, getattr(module, name)]
        except AttributeError:
            parent = builtins.__import__(module.__name__, namespace, None, (name,), 0)
            return 0, [module, getattr(parent, name)]
    return _step(instr, run, Exit(instr.index + 1, (V, V)))


def _before_with(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        manager = operands[0]
        cls = type(manager)
        enter, leave = _special(cls, manager, "__enter__", ""), _special(
            cls, manager, "__exit__", " (missed __exit__ method)")
        return 0, [leave, enter()]
    return _step(instr, run, Exit(instr.index + 1, (V, V)))


def _special(cls: type, obj: object, name: str, missed: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            found = base.__dict__[name]
            return found.__get__(obj, cls) if hasattr(type(found), "__get__") else found
    raise TypeError(f"'{cls.__name__}' object does not support the context manager protocol{missed}")


def _raise(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step | None:
    if not instr.arg:
        return None

    def run(exc: Any, *cause: Any) -> None:
        if cause:
            raise exc from cause[0]
        raise exc
    return _statement(run, instr)


def _build(make: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def plan(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
        return _step(instr, lambda operands, invoke: (0, [make(operands)]), Exit(instr.index + 1, (V,)))
    return plan


def _extend(method: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Instructions that change a container `arg` places down."""
    def plan(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
        depth = instr.arg or 0

        def run(operands: list[Any], invoke: Invoke) -> Outcome:
            method(operands[0], operands[-1])
            return 0, operands[:-1]
        return _step(instr, run, Exit(instr.index + 1, (V,) * depth))
    return plan


def _map_add(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    depth = instr.arg or 0

    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        operands[0][operands[-2]] = operands[-1]
        return 0, operands[:-2]
    return _step(instr, run, Exit(instr.index + 1, (V,) * depth))


_PLANNERS: dict[str, Any] = {
    "BINARY_OP": _binary, "COMPARE_OP": _compare, "CONTAINS_OP": _contains,
    "UNARY_NEGATIVE": _unary("-"), "UNARY_POSITIVE": _unary("+"), "UNARY_INVERT": _unary("~"),
    "UNARY_NOT": lambda i, k, n: _simple(operator.not_, i),
    "BINARY_SUBSCR": lambda i, k, n: _simple(operator.getitem, i),
    "GET_ITER": lambda i, k, n: _simple(iter, i),
    "CALL": _call, "CALL_FUNCTION_EX": _call_ex,
    "LOAD_ATTR": _load_attr, "LOAD_METHOD": _load_method, "STORE_ATTR": _store_attr, "DELETE_ATTR": _delete_attr,
    "STORE_SUBSCR": _store_subscr, "DELETE_SUBSCR": _delete_subscr, "LOAD_GLOBAL": _load_global,
    "CALL_KW": _call_kw, "LOAD_SUPER_ATTR": _load_super_attr,
    "BINARY_SLICE": lambda i, k, n: _simple(lambda obj, start, stop: obj[start:stop], i),
    "STORE_SLICE": _store_slice, "CALL_INTRINSIC_1": _intrinsic, "CALL_INTRINSIC_2": _intrinsic,
    "TO_BOOL": lambda i, k, n: _simple(bool, i), "CONVERT_VALUE": _convert,
    "FORMAT_SIMPLE": lambda i, k, n: _simple(format, i), "FORMAT_WITH_SPEC": lambda i, k, n: _simple(format, i),
    "POP_JUMP_IF_FALSE": _jump_if(False), "POP_JUMP_IF_TRUE": _jump_if(True),
    "POP_JUMP_FORWARD_IF_FALSE": _jump_if(False), "POP_JUMP_BACKWARD_IF_FALSE": _jump_if(False),
    "POP_JUMP_FORWARD_IF_TRUE": _jump_if(True), "POP_JUMP_BACKWARD_IF_TRUE": _jump_if(True),
    "JUMP_IF_FALSE_OR_POP": _jump_or_pop(False), "JUMP_IF_TRUE_OR_POP": _jump_or_pop(True),
    "FOR_ITER": _for_iter, "UNPACK_SEQUENCE": _unpack, "UNPACK_EX": _unpack_ex, "FORMAT_VALUE": _format,
    "IMPORT_NAME": _import_name, "IMPORT_FROM": _import_from, "BEFORE_WITH": _before_with, "RAISE_VARARGS": _raise,
    "BUILD_SET": _build(set), "BUILD_MAP": _build(lambda v: dict(zip(v[::2], v[1::2], strict=True))),
    # As displays do it, which refuse other things than the methods, and in other words.
    "LIST_EXTEND": _extend(lambda made, value: made.extend([*value])), "SET_UPDATE": _extend(set.update),
    "DICT_UPDATE": _extend(lambda made, value: made.update({**value})),
    "SET_ADD": _extend(set.add), "LIST_APPEND": _extend(list.append), "MAP_ADD": _map_add,
}
