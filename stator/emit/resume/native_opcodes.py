"""One instruction, run as plain Python.   BINARY_OP + on (a, b)  ->  (0, [a + b])

The unsupported instruction of a graph break runs here, on real objects, between two captured segments.  The outcome
holds the exit by which control leaves the instruction (0: falls through, 1: jumps) and what it pushes.
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
from stator.emit.resume.native_step import SlotKind
from stator.interp.frame import NULL
from stator.interp.objects.operators import BINARY, COMPARE, UNARY
from stator.interp.opcodes.opcodes_since_314 import interpolation, refusal, template

V, N = SlotKind.VALUE, SlotKind.NULL
_CALLABLE = (V, N) if NULL_LAST else (N, V)  # something to call, without a receiver
Outcome = tuple[int, list[Any]]
Invoke = Callable[..., Any]  # how a function of the program is called
Run = Callable[[list[Any], Invoke], Outcome]


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
    run: Run
    exits: tuple[Exit, ...]
    form: NativeForm | None = None


def plan_step(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step | None:
    """The step of an instruction, or None where only the whole frame can run it natively."""
    if instr.opname in _VALUES:
        return _value(instr, _VALUES[instr.opname](instr))
    if instr.opname in _STATEMENTS:
        return None if instr.opname == "RAISE_VARARGS" and not instr.arg else _statement(instr)
    planner = _PLANNERS.get(instr.opname)
    return None if planner is None else planner(instr, kwnames, namespace)


def _step(instr: Instruction, run: Run, pushes: tuple[SlotKind, ...] = (V,), *jump: Exit,
          form: NativeForm | None = None) -> Step:
    """A step that takes its operands as `code/stack_effects` declares; it falls through with `pushes`, or jumps."""
    return Step(pops(instr.opname, instr.arg or 0), run, (Exit(instr.index + 1, pushes), *jump), form)


def _value(instr: Instruction, function: Callable[..., Any]) -> Step:
    return _step(instr, lambda operands, invoke: (0, [invoke(function, *operands)]), form=NativeForm(function))


def _statement(instr: Instruction) -> Step:
    function = _STATEMENTS[instr.opname](instr)

    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        invoke(function, *operands)
        return 0, []
    return _step(instr, run, (), form=NativeForm(function))


def _binary(instr: Instruction) -> Callable[..., Any]:
    symbol = instr.argval
    inplace = symbol[-1] == "=" and symbol not in BINARY
    plain, in_place, _ = BINARY[symbol[:-1] if inplace else symbol]
    return in_place if inplace else plain


def _contains(instr: Instruction) -> Callable[..., Any]:
    return (lambda item, container: item not in container) if instr.arg else (lambda item, container: item in container)


def _format(instr: Instruction) -> Callable[..., Any]:
    convert = (None, str, repr, ascii)[(instr.arg or 0) & 3]
    return lambda value, spec="": format(value if convert is None else convert(value), spec)


def _raised(exc: Any, *cause: Any) -> None:
    if cause:
        raise exc from cause[0]
    raise exc


# Instructions that replace their operands by one value: the function of the operands.
_VALUES: dict[str, Callable[[Instruction], Callable[..., Any]]] = {
    "BINARY_OP": _binary, "COMPARE_OP": lambda i: COMPARE[i.argval][0], "CONTAINS_OP": _contains,
    "UNARY_NEGATIVE": lambda i: UNARY["-"][0], "UNARY_POSITIVE": lambda i: UNARY["+"][0],
    "UNARY_INVERT": lambda i: UNARY["~"][0], "UNARY_NOT": lambda i: operator.not_,
    "BINARY_SUBSCR": lambda i: operator.getitem, "GET_ITER": lambda i: iter, "TO_BOOL": lambda i: bool,
    "BINARY_SLICE": lambda i: lambda obj, start, stop: obj[start:stop],
    "CALL_INTRINSIC_1": lambda i: intrinsic(i.argval), "CALL_INTRINSIC_2": lambda i: intrinsic(i.argval),
    "CONVERT_VALUE": lambda i: (str, repr, ascii)[(i.arg or 1) - 1], "FORMAT_VALUE": _format,
    "FORMAT_SIMPLE": lambda i: format, "FORMAT_WITH_SPEC": lambda i: format,
    "BUILD_INTERPOLATION": interpolation, "BUILD_TEMPLATE": lambda i: template,
}
# Instructions that leave nothing on the stack.
_STATEMENTS: dict[str, Callable[[Instruction], Callable[..., Any]]] = {
    "STORE_ATTR": lambda i: lambda value, obj: setattr(obj, i.argval, value),
    "DELETE_ATTR": lambda i: lambda obj: delattr(obj, i.argval),
    "STORE_SUBSCR": lambda i: lambda value, obj, key: operator.setitem(obj, key, value),
    "STORE_SLICE": lambda i: lambda value, obj, start, stop: operator.setitem(obj, slice(start, stop), value),
    "DELETE_SUBSCR": lambda i: operator.delitem, "RAISE_VARARGS": lambda i: _raised,
}


def _function_of(operands: list[Any]) -> tuple[Any, list[Any]]:
    """The callee and its arguments, above (NULL, f), (f, NULL) or (f, receiver)."""
    first, second, *args = operands
    if first is NULL:
        return second, args
    return first, args if second is NULL else [second, *args]


def _call_kw(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        function, args = _function_of(operands[:-1])
        named = len(operands[-1])
        return 0, [invoke(function, *args[:-named], **dict(zip(operands[-1], args[-named:], strict=True)))]
    return _step(instr, run)


def _call(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    named = len(kwnames)

    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        function, args = _function_of(operands)
        if not named:
            return 0, [invoke(function, *args)]
        return 0, [invoke(function, *args[:-named], **dict(zip(kwnames, args[-named:], strict=True)))]
    return _step(instr, run, form=NativeForm(names=kwnames))


def _call_ex(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        function, (args, *kwargs) = _function_of(operands)
        return 0, [invoke(function, *args, **(kwargs[0] if kwargs and kwargs[0] is not NULL else {}))]
    return _step(instr, run)


def _load_attr(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    return _step(instr, lambda operands, invoke: (0, [invoke(getattr, operands[0], instr.argval)]),
                 _CALLABLE if instr.flag or instr.opname == "LOAD_METHOD" else (V,))


def _load_super_attr(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    explicit = bool((instr.arg or 0) & 2)

    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        function, *found = operands
        made = invoke(function, *found) if function is super or explicit else invoke(function)
        return 0, [invoke(getattr, made, instr.argval)]
    return _step(instr, run, _CALLABLE if instr.flag else (V,))


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
    return _step(instr, run, _CALLABLE if instr.flag else (V,))


def _import_from(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    name = instr.argval

    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        module = operands[0]
        try:
            return 0, [module, getattr(module, name)]
        except AttributeError:
            parent = builtins.__import__(module.__name__, namespace, None, (name,), 0)
            return 0, [module, getattr(parent, name)]
    return _step(instr, run, (V, V))


def _jump_if(wanted: bool, keeps: bool = False) -> Callable[..., Any]:
    """Jump where the operand's truth is `wanted`; with `keeps`, the operand stays there."""
    def plan(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
        def run(operands: list[Any], invoke: Invoke) -> Outcome:
            return (1, operands if keeps else []) if bool(operands[0]) is wanted else (0, [])
        return _step(instr, run, (), Exit(instr.target or 0, (V,) if keeps else ()),
                     form=None if keeps else NativeForm(jumps_on=wanted))
    return plan


_DONE = object()


def _for_iter(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        value = invoke(next, operands[0], _DONE)
        return (1, []) if value is _DONE else (0, [operands[0], value])
    return _step(instr, run, (V, V), Exit((instr.target or 0) + LOOP_END_SKIP, ()))


def _unpack(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    """Unpack as an assignment does, with a starred target for UNPACK_EX."""
    before, after = instr.arg or 0, 0
    if starred := instr.opname == "UNPACK_EX":
        before, after = before & 0xFF, before >> 8
    names = [f"v{i}" for i in range(before)] + ["rest"] * starred + [f"w{i}" for i in range(after)]
    target = ", ".join(f"*{name}" if name == "rest" else name for name in names)
    made: dict[str, Any] = {}
    exec(f"def unpack(value):\n    [{target}] = value\n    return [{', '.join(reversed(names))}]", made)  # noqa: S102
    return _step(instr, lambda operands, invoke: (0, made["unpack"](operands[0])), (V,) * len(names))


def _before_with(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        text = f"'{type(operands[0]).__name__}' object does not support the context manager protocol"
        enter = _special(operands[0], "__enter__", text)
        leave = _special(operands[0], "__exit__", f"{text} (missed __exit__ method)")
        return 0, [leave, enter()]
    return _step(instr, run, (V, V))


def _load_special(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
    def run(operands: list[Any], invoke: Invoke) -> Outcome:
        cls, name = type(operands[0]), instr.argval
        return 0, [_special(operands[0], name, refusal(cls, name, {*dir(cls)}.__contains__))]
    return _step(instr, run, _CALLABLE)


def _special(obj: object, name: str, text: str) -> Any:
    cls = type(obj)
    for base in cls.__mro__:
        if name in base.__dict__:
            found = base.__dict__[name]
            return found.__get__(obj, cls) if hasattr(type(found), "__get__") else found
    raise TypeError(text)


def _build(make: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    return lambda instr, kwnames, namespace: _step(instr, lambda operands, invoke: (0, [make(operands)]))


def _extend(method: Callable[..., Any], taken: int = 1) -> Callable[..., Any]:
    """Instructions that change a container `arg` places down, with the last `taken` operands."""
    def plan(instr: Instruction, kwnames: tuple[str, ...], namespace: dict[str, Any]) -> Step:
        def run(operands: list[Any], invoke: Invoke) -> Outcome:
            method(operands[0], *operands[-taken:])
            return 0, operands[:-taken]
        return _step(instr, run, (V,) * (instr.arg or 0))
    return plan


_PLANNERS: dict[str, Any] = {
    "CALL": _call, "CALL_KW": _call_kw, "CALL_FUNCTION_EX": _call_ex, "LOAD_ATTR": _load_attr,
    "LOAD_METHOD": _load_attr, "LOAD_SUPER_ATTR": _load_super_attr, "LOAD_GLOBAL": _load_global,
    "IMPORT_NAME": lambda instr, kwnames, namespace: _value(
        instr, lambda level, names: builtins.__import__(instr.argval, namespace, None, names, level)),
    "IMPORT_FROM": _import_from,
    "POP_JUMP_IF_FALSE": _jump_if(False), "POP_JUMP_IF_TRUE": _jump_if(True),
    "POP_JUMP_FORWARD_IF_FALSE": _jump_if(False), "POP_JUMP_BACKWARD_IF_FALSE": _jump_if(False),
    "POP_JUMP_FORWARD_IF_TRUE": _jump_if(True), "POP_JUMP_BACKWARD_IF_TRUE": _jump_if(True),
    "JUMP_IF_FALSE_OR_POP": _jump_if(False, keeps=True), "JUMP_IF_TRUE_OR_POP": _jump_if(True, keeps=True),
    "FOR_ITER": _for_iter, "UNPACK_SEQUENCE": _unpack, "UNPACK_EX": _unpack, "BEFORE_WITH": _before_with,
    "LOAD_SPECIAL": _load_special,
    "BUILD_SET": _build(set), "BUILD_MAP": _build(lambda v: dict(zip(v[::2], v[1::2], strict=True))),
    # As displays do it, which refuse other things than the methods, and with other messages.
    "LIST_EXTEND": _extend(lambda made, value: made.extend([*value])), "SET_UPDATE": _extend(set.update),
    "DICT_UPDATE": _extend(lambda made, value: made.update({**value})),
    "SET_ADD": _extend(set.add), "LIST_APPEND": _extend(list.append), "MAP_ADD": _extend(operator.setitem, taken=2),
}
