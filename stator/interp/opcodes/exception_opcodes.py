"""Opcodes of exceptions, `with` and `match`.   `Machine.unwind` chooses a handler; a normal exit of `with` is a CALL"""

from __future__ import annotations

import types
from typing import Any

from stator.breaks import Break
from stator.code.instruction import Instruction
from stator.code.intrinsics import CHECKS_CAUSES
from stator.code.opcodes import EXIT_PLACES
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.frame import NULL, Continuation, Frame, Raised, SavedExc
from stator.interp.lookup import MISSING, ancestors, find, flags_of, is_mutable_class
from stator.interp.machine import op, ops
from stator.interp.objects.attributes import load_attr
from stator.interp.objects.descriptors import bind
from stator.interp.outside_exceptions import handled_exception
from stator.interp.services import VM
from stator.shapes.symbolic_values import python_type
from stator.source import Pinned

_ABSENT = object()


@op
def RAISE_VARARGS(vm: VM, frame: Frame, instr: Instruction) -> None:
    if instr.arg == 0:
        current = handled_exception(vm)
        if current is None:
            raise Raised(RuntimeError("No active exception to reraise"))
        raise Raised(current, again=True)
    cause: Any = frame.stack.pop() if instr.arg == 2 else MISSING
    exc = make_exception(vm, frame.stack.pop())
    if cause is not MISSING:
        if cause is not None:
            if is_a(cause, type) and issubclass(cause, BaseException):
                cause = _made_cause(vm, cause)
            elif not is_a(cause, BaseException):
                raise Raised(TypeError("exception causes must derive from BaseException"))
        exc.__cause__ = cause
    raise Raised(vm.set_context(exc), spoken=True)


def _made_cause(vm: VM, cls: type) -> BaseException | None:
    made = vm.call_sync(cls, ())
    if is_a(made, BaseException):
        return made
    if CHECKS_CAUSES:
        raise _not_an_instance(cls, made)
    if made is not None:  # CPython stores it, which Python code cannot do
        raise Break("SB001", "a cause that is no exception")
    return made


def _not_an_instance(cls: type, made: object) -> Raised:
    return Raised(TypeError(f"calling {cls!r} should have returned an instance of BaseException, not {type(made)}"))


def make_exception(vm: VM, value: Any) -> BaseException:
    if is_a(value, type) and issubclass(value, BaseException):
        made = vm.call_sync(value, ())
        if not is_a(made, BaseException):
            raise _not_an_instance(value, made)
        return made
    if not is_a(value, BaseException):
        raise Raised(TypeError("exceptions must derive from BaseException"))
    return value


@op
def PUSH_EXC_INFO(vm: VM, frame: Frame, instr: Instruction) -> None:
    exc = frame.stack.pop()
    frame.stack += SavedExc(vm.exc_state.value, exc), exc
    vm.exc_state.value = exc


@op
def POP_EXCEPT(vm: VM, frame: Frame, instr: Instruction) -> None:
    vm.exc_state.value = frame.stack.pop().previous


@op
def RERAISE(vm: VM, frame: Frame, instr: Instruction) -> None:
    raise Raised(frame.stack.pop(), again=True)


def caught_classes(wanted: Any) -> tuple[type, ...]:
    """Classes that an `except` or `except*` names."""
    classes = wanted if is_a(wanted, tuple) else (wanted,)
    for cls in classes:
        if not (is_a(cls, type) and issubclass(cls, BaseException)):
            raise Raised(TypeError("catching classes that do not inherit from BaseException is not allowed"))
    return classes


@op
def CHECK_EXC_MATCH(vm: VM, frame: Frame, instr: Instruction) -> None:
    wanted = frame.stack.pop()
    vm.heap.expose(wanted)
    classes = caught_classes(wanted)
    frame.stack.append(any(cls in ancestors(vm, type(frame.stack[-1])) for cls in classes))


def _with_parts(exc: BaseException) -> list[BaseException]:
    parts = exc.exceptions if is_a(exc, BaseExceptionGroup) else ()  # type: ignore[attr-defined]
    return [exc, *(each for part in parts for each in _with_parts(part))]


@op
def CHECK_EG_MATCH(vm: VM, frame: Frame, instr: Instruction) -> None:
    wanted, exc = frame.stack.pop(), frame.stack.pop()
    if any(issubclass(cls, BaseExceptionGroup) for cls in caught_classes(wanted)):
        raise Raised(TypeError("catching ExceptionGroup with except* is not allowed. Use except instead."))
    for part in _with_parts(exc):
        ancestors(vm, type(part))
    if is_a(exc, wanted):
        match, rest = exc if is_a(exc, BaseExceptionGroup) else vm.native(BaseExceptionGroup, ("", (exc,))), None
    elif is_a(exc, BaseExceptionGroup):
        if id(exc) in vm.heap.by_standin:  # the parts would hold outside exceptions, which have no source
            raise Break("SB005", "an exception group from outside, which except* takes apart")
        match, rest = vm.native(type(exc).split, (exc, wanted))
    else:
        match, rest = None, exc
    frame.stack += rest, match
    if match is not None:
        vm.exc_state.value = match
        saved = next((item for item in reversed(frame.stack) if type(item) is SavedExc), None)
        if saved is not None:  # after a break in the handler, the part is what is being handled
            saved.current = match


@op
def PREP_RERAISE_STAR(vm: VM, frame: Frame, instr: Instruction) -> None:
    raised, original = frame.stack.pop(), frame.stack.pop()
    vm.heap.expose(raised)  # after a break in a handler, a list from outside
    frame.stack.append(prepare_reraise(original, raised))


def prepare_reraise(original: BaseException, raised: list[Any]) -> BaseException | None:
    """The exception of an `except*`: the unhandled part of the group, merged with exceptions of its handlers."""
    if not is_a(original, BaseExceptionGroup):
        return raised[0] if raised else None
    fresh: list[BaseException] = []
    reraised: list[BaseException] = []
    for exc in raised:
        if exc is not None:
            (reraised if is_a(exc, BaseExceptionGroup) and _is_alike(exc, original) else fresh).append(exc)
    if reraised:
        keep = set().union(*(_leaves(part) for part in reraised))
        rest, _ = original.split(lambda exc: id(exc) in keep)  # type: ignore[attr-defined]
        if not fresh:
            return rest
        fresh += () if rest is None else (rest,)
    elif not fresh:
        return None
    return fresh[0] if len(fresh) == 1 and not reraised else BaseExceptionGroup("", fresh)


def _leaves(group: Any) -> set[int]:
    if is_a(group, BaseExceptionGroup):
        return {leaf for exc in group.exceptions for leaf in _leaves(exc)}
    return {id(group)}


def _is_alike(exc: BaseException, original: BaseException) -> bool:
    """Whether a part has what the group came with: then it was only raised again. CPython looks at no notes here."""
    return exc.__traceback__ is original.__traceback__ and exc.__cause__ is original.__cause__ \
        and exc.__context__ is original.__context__


def special_method(vm: VM, obj: object, name: str, text: str) -> Any:
    """A bound dunder looked up on the type, or TypeError `text`."""
    found = find(vm, type(obj), name)
    if found is MISSING:
        raise Raised(TypeError(text))
    if type(found) is types.FunctionType:
        return types.MethodType(found, obj)
    return vm.sync(lambda: bind(vm, found, obj, type(obj), None))


def begin_with(vm: VM, frame: Frame, prefix: str, protocol: str) -> None:
    manager = frame.stack.pop()
    text = f"'{name_in_errors(type(manager))}' object does not support the {protocol} protocol"
    enter = special_method(vm, manager, f"__{prefix}enter__", text)
    leave = special_method(vm, manager, f"__{prefix}exit__", f"{text} (missed __{prefix}exit__ method)")
    frame.stack.append(leave)
    if not prefix:
        vm.torch_state.note_block(leave)
    vm.call(enter, ())


@op
def WITH_EXCEPT_START(vm: VM, frame: Frame, instr: Instruction) -> None:
    leave, exc = frame.stack[-3 - EXIT_PLACES], frame.stack[-1]
    receiver = frame.stack[-4:-3] if EXIT_PLACES == 2 and frame.stack[-4] is not NULL else ()
    vm.call(leave, (*receiver, type(exc), exc, vm.traceback_of(exc)))


def _is_collection(vm: VM, value: object, flag: int) -> bool:
    """Whether the class matches as a mapping or sequence (Py_TPFLAGS_*); registering it with an ABC changes that."""
    cls = python_type(value)
    if is_mutable_class(cls) and id(cls) not in vm.fresh:
        vm.heap.guard_call(collection_flags, collection_flags(cls), Pinned(cls))
    return bool(flags_of(cls) & flag)


def collection_flags(cls: type) -> int:
    """A pure reader for guards."""
    return flags_of(cls) & 0x60


@op
def MATCH_KEYS(vm: VM, frame: Frame, instr: Instruction) -> None:
    keys, subject = frame.stack[-1], frame.stack[-2]
    values: dict[Any, Any] = {}
    for key in keys:
        if key in values:
            raise Raised(ValueError(f"mapping pattern checks duplicate key ({key!r})"))
        if not values:
            getter = vm.sync(lambda: load_attr(vm, subject, "get"))
        values[key] = vm.call_sync(getter, (key, _ABSENT))
        if values[key] is _ABSENT:
            frame.stack.append(None)
            return
    frame.stack.append(tuple(values.values()))


class _Absent(Continuation):
    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, AttributeError):
            return False
        frame.stack.append(_ABSENT)
        return True


def optional_attr(vm: VM, obj: object, name: str) -> Any:
    found = vm.sync(lambda: load_attr(vm, obj, name, _Absent()))
    return MISSING if found is _ABSENT else found


def _refusal(pattern: object = None) -> str:
    try:
        match 0:
            case pattern():  # type: ignore[misc]  # which is the point
                return ""
    except TypeError as error:
        return str(error)
    return ""


_NO_CLASS_IN_PATTERN = _refusal()  # asked of CPython: versions word it differently


@op
def MATCH_CLASS(vm: VM, frame: Frame, instr: Instruction) -> None:
    names, cls, subject = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    frame.stack.append(match_class(vm, subject, cls, names, instr.arg))


def match_class(vm: VM, subject: object, cls: type, names: tuple[str, ...], positional: int) -> tuple[Any, ...] | None:
    if not is_a(cls, type):
        raise Raised(TypeError(_NO_CLASS_IN_PATTERN))
    if not vm.call_sync(isinstance, (subject, cls)):
        return None
    found: list[Any] = []
    seen: set[str] = set()
    if positional:
        match_args = optional_attr(vm, cls, "__match_args__")
        itself = False
        if match_args is MISSING:
            match_args = ()
            itself = bool(cls.__flags__ & (1 << 22))  # Py_TPFLAGS_MATCH_SELF: int, str, list, ...
        elif not is_a(match_args, tuple):
            raise Raised(TypeError(f"{name_in_errors(cls)}.__match_args__ must be a tuple "
                                   f"(got {name_in_errors(type(match_args))})"))
        allowed = 1 if itself else len(match_args)
        if allowed < positional:
            plural = "" if allowed == 1 else "s"
            raise Raised(TypeError(f"{name_in_errors(cls)}() accepts {allowed} positional sub-pattern{plural} "
                                   f"({positional} given)"))
        if itself:
            found.append(subject)
        else:
            for name in match_args[:positional]:
                if type(name) is not str:
                    given = name_in_errors(type(name))
                    raise Raised(TypeError(f"__match_args__ elements must be strings (got {given})"))
                if not _match_attr(vm, subject, cls, name, seen, found):
                    return None
    for name in names:
        if not _match_attr(vm, subject, cls, name, seen, found):
            return None
    return tuple(found)


def _match_attr(vm: VM, subject: object, cls: type, name: str, seen: set[str], found: list[Any]) -> bool:
    if name in seen:
        raise Raised(TypeError(f"{name_in_errors(cls)}() got multiple sub-patterns for attribute '{name}'"))
    seen.add(name)
    value = optional_attr(vm, subject, name)
    if value is MISSING:
        return False
    found.append(value)
    return True


ops(
    BEFORE_WITH=lambda vm, frame, instr: begin_with(vm, frame, "", "context manager"),
    BEFORE_ASYNC_WITH=lambda vm, frame, instr: begin_with(vm, frame, "a", "asynchronous context manager"),
    MATCH_MAPPING=lambda vm, frame, instr: frame.stack.append(_is_collection(vm, frame.stack[-1], 1 << 6)),
    MATCH_SEQUENCE=lambda vm, frame, instr: frame.stack.append(_is_collection(vm, frame.stack[-1], 1 << 5)),
)
