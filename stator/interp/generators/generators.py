"""Generators and coroutines: real objects whose bodies the interpreter runs, and frames of native ones."""

from __future__ import annotations

import contextlib
import gc
import types
import weakref
from dataclasses import dataclass
from typing import Any

from stator import _hook
from stator.breaks import Break
from stator.code.decode import decode
from stator.code.enclosing_handlers import raised_places, saved_exceptions
from stator.code.instruction import Instruction
from stator.heap.tracker import Box, VariableTracker, unbox
from stator.interp.frame import UNBOUND, Continuation, Finished, Frame, SavedExc, stack_of
from stator.interp.generators.suspended_frames import (
    ASYNC_GENERATOR,
    AWAITED,
    COROUTINE,
    Suspended,
    Yielded,
    resume,
    throw,
)
from stator.interp.machine import Bug, Thunk, op, program_of
from stator.interp.objects.function_attributes import names_of_function
from stator.interp.services import VM
from stator.source import CallOf, Index, Pinned

RESUMABLE = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
ADOPTED = (types.GeneratorType, types.CoroutineType)
_CREATED, _SUSPENDED, _RUNNING, _OVER = 0, 1, 2, 3  # of _hook.generator_read
_NOTHING = object()  # stands for NULL in what _hook reads and writes


class _Raw:
    """Awaiting this sends `value` out of a coroutine as it is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        return (yield self.value)


def step(vm: VM, body: Suspended, value: object, exc: BaseException | None) -> tuple[bool, Any]:
    """Resume from C code: a nested loop, until the next yield.  (yielded?, value)"""
    def begin() -> None:
        if exc is None:
            resume(vm, body, value, NESTED)
        else:
            throw(vm, body, exc, NESTED)
    result = vm.run(Thunk(begin))
    return (True, result.value) if type(result) is Finished else (False, result)


class Nested(Continuation):
    """The generator was resumed by C code: hand its value to the nested loop's caller."""

    def yielded(self, vm: VM, frame: Frame, value: object) -> None:
        raise Finished(value, yielded=True)

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        raise Finished(value)


NESTED = Nested()


def drive_generator(vm: VM, body: Suspended) -> Any:
    value, exc = None, None
    try:
        yield None  # primed at once, so that dropping the object always closes the body
        while True:
            result = [*step(vm, body, value, exc)]  # emptied as it is handed on: its last value must not live here
            if not result[0]:
                return result.pop()
            value = exc = None
            try:
                value = yield vm.walked(result.pop()) if type(result[1]) is types.GeneratorType else result.pop()
            except BaseException as error:
                if not vm.generators.live:  # dropped after the trace: nothing of the program is run any more
                    raise
                exc = error.with_traceback(None)
    except GeneratorExit:
        _close_dropped(vm, body)


def _close_dropped(vm: VM, body: Suspended) -> None:
    if body.started and not body.done and not body.running and vm.generators.live:
        leaving = GeneratorExit()
        try:
            step(vm, body, None, leaving)
        except (GeneratorExit, StopIteration):
            leaving.__traceback__ = None  # else it and the frames that it came through, the program's too, are a cycle
        except (Break, Bug):  # whoever dropped the generator would not hear of it
            raise_pending(vm)


def raise_pending(vm: VM) -> None:
    """Stop at the next step: the C code below does not hand the exception on."""
    frame = vm.frame
    def stop() -> None:
        vm.frame, vm.steps = frame, vm.steps - 1  # this thunk is no instruction to stop at
        raise vm.pending  # type: ignore[misc]
    vm.frame = Thunk(stop)


async def drive_coroutine(vm: VM, body: Suspended) -> Any:
    value, exc = None, None
    try:
        await _Raw(None)
        while True:
            more, result = step(vm, body, value, exc)
            if not more:
                return result
            value = exc = None
            try:
                value = await _Raw(result)
            except BaseException as error:
                if not vm.generators.live:  # dropped after the trace: nothing of the program is run any more
                    raise
                exc = error.with_traceback(None)
    except GeneratorExit:
        _close_dropped(vm, body)


async def drive_async_generator(vm: VM, body: Suspended) -> Any:
    value, exc = None, None
    while True:
        more, result = step(vm, body, value, exc)
        if not more:
            return
        value = exc = None
        try:
            if type(result) is Yielded:
                value = yield result.value
            else:
                value = await _Raw(result)
        except BaseException as error:
            if not vm.generators.live:  # dropped after the trace: nothing of the program is run any more
                raise
            exc = error.with_traceback(None)


def driven(vm: VM, body: Suspended, flags: int, name: str, qualname: str) -> Any:
    """The object that the program holds of `body`."""
    if flags & ASYNC_GENERATOR:
        made: Any = drive_async_generator(vm, body)
    else:
        made = drive_coroutine(vm, body) if flags & COROUTINE else drive_generator(vm, body)
        made.send(None)
    made.__name__, made.__qualname__ = name, qualname
    key = id(made)
    vm.generators[key] = body
    vm.generators.bodies.append(weakref.ref(body))
    body.handle = weakref.ref(made, lambda _: vm.generators.dropped(key))
    return made


@op
def RETURN_GENERATOR(vm: VM, frame: Frame, instr: Instruction) -> None:
    func, code, parent = frame.func, frame.code, frame.parent
    names = (code.co_name, code.co_qualname) if func is None else names_of_function(vm, func)
    frame.generator = body = Suspended(frame)
    made = driven(vm, body, code.co_flags, *names)
    frame.parent = frame.outer = None
    if frame.is_base:
        raise Finished(made)
    vm.frame = parent
    vm.give(made, frame.cont)


@op
def YIELD_VALUE(vm: VM, frame: Frame, instr: Instruction) -> None:
    """Suspend the frame: `Suspended.yielded` hands the value to the consumer."""
    frame.generator.yielded(vm, frame.stack.pop())


@op
def ASYNC_GEN_WRAP(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.stack.append(Yielded(frame.stack.pop()))


@dataclass(frozen=True)
class GeneratorFrame:
    """The frame of a generator that waits: after a yield, or before its first instruction."""

    code: types.CodeType
    namespace: dict[str, Any]
    index: int
    slots: tuple[int, ...]
    kinds: tuple[str, ...]
    values: tuple[Any, ...]  # of the slots, then of the stack; two for a saved exception: before, handled since
    started: bool

    @property
    def key(self) -> tuple[Any, ...]:
        return (id(self.code), id(self.namespace), self.index, self.slots, self.kinds, self.started)


def frame_of(generator: object) -> GeneratorFrame | None:
    """Where a generator waits; None while it runs and when it is over."""
    if type(generator) not in RESUMABLE:
        return None
    state, *rest = _hook.generator_read(generator, _NOTHING)
    if not rest:
        return None
    code, namespace, position, places, handled = rest
    unit = decode(code)
    index = unit.index_of_offset[position * 2]
    slots = tuple(slot for slot in range(unit.nlocalsplus) if places[slot] is not _NOTHING)
    values = [places[slot] for slot in slots]
    stack = places[unit.nlocalsplus:]
    saved = sorted(saved_exceptions(unit, index))
    kinds: list[str] = []
    for at, value in enumerate(stack):
        if at in saved:
            kinds.append("exc_info")
            above = [other for other in saved if other > at]
            values += [value, stack[above[0]] if above else handled]
        elif value is _NOTHING:
            kinds.append("null")
        else:
            kinds.append("value")
            values.append(value)
    return GeneratorFrame(code, namespace, index, slots, tuple(kinds), tuple(values), state != _CREATED)


def is_over(generator: object) -> bool:
    return _hook.generator_read(generator, _NOTHING)[0] == _OVER


def standing_key(generator: object) -> tuple[Any, ...] | None:
    """A pure reader for guards: where a generator waits, or that it is over."""
    found = frame_of(generator)
    return found.key if found is not None else ("over",) if is_over(generator) else None


def standing_values(generator: object) -> tuple[Any, ...]:
    """A pure reader for guards and residuals: the values of a waiting generator's frame."""
    found = frame_of(generator)
    return () if found is None else found.values


def new_generator(code: types.CodeType, namespace: dict[str, Any], name: str, qualname: str) -> Any:
    """A generator of `code` that has not started, its locals still to be given."""
    closure = tuple(types.CellType() for _ in code.co_freevars) or None
    function = types.FunctionType(code, namespace, name, None, closure)
    function.__qualname__ = qualname
    names = code.co_varnames[code.co_argcount:code.co_argcount + code.co_kwonlyargcount]
    token = _hook.pause()
    try:
        return function(*[None] * code.co_argcount, **dict.fromkeys(names))
    finally:
        _hook.resume(token)


def stand(generator: object, index: int, slots: tuple[int, ...], kinds: tuple[str, ...], values: tuple[Any, ...],
          started: bool) -> None:
    """Put a native generator at an instruction, with these locals and this stack."""
    unit = decode(code_of(generator))
    given = iter(values)
    places = [_NOTHING] * unit.nlocalsplus
    for slot in slots:
        places[slot] = next(given)
    handled = None
    for kind in kinds:
        if kind == "null":
            places.append(_NOTHING)
            continue
        places.append(next(given))
        if kind == "exc_info":
            handled = next(given)
    position, state = unit.instructions[index].offset // 2, _SUSPENDED if started else _CREATED
    raised = tuple(unit.nlocalsplus + place for place in raised_places(unit, index))
    _hook.generator_write(generator, state, position, tuple(places), handled, _NOTHING, raised)


def mark_running(generator: object) -> Any:
    """The generator's frame is resumed somewhere else: to everybody who looks, it runs."""
    return _empty(generator, _RUNNING)


def finish(generator: object) -> object:
    """The body ran to its end somewhere else; the generator itself is over now."""
    if type(generator) is types.AsyncGeneratorType:
        closing = _empty(generator, _CREATED).aclose()
        try:
            closing.send(None)
        except StopIteration:
            pass
    else:
        _empty(generator, _CREATED).close()
    return generator


def finish_running(generator: object) -> None:
    """The same, where the body was resumed somewhere else and an error has left it."""
    kind = "gi" if type(generator) is types.GeneratorType else "cr" if type(generator) is types.CoroutineType else "ag"
    if getattr(generator, f"{kind}_running"):
        finish(generator)


def _empty(generator: object, state: int) -> Any:
    unit = decode(code_of(generator))
    first = next(i for i in unit.instructions if i.opname == "RETURN_GENERATOR").offset // 2 + 1
    _hook.generator_write(generator, state, first, (_NOTHING,) * unit.nlocalsplus, None, _NOTHING)
    return generator


def code_of(generator: Any) -> types.CodeType:
    if type(generator) is types.GeneratorType:
        return generator.gi_code
    return generator.cr_code if type(generator) is types.CoroutineType else generator.ag_code


class Generators(dict[int, Any]):
    """The interpreted bodies of generators, by id of the object; one from outside is adopted at its first read."""

    def __init__(self, vm: VM) -> None:
        super().__init__()
        self.vm = vm
        self.bodies: list[Any] = []  # weak references to the bodies of all generators made inside
        self.live = True  # until the trace is over
        self.unawaited = False  # whether a coroutine died before it was begun
        self.unbegun: dict[int, Any] = {}  # steps of async generators that nothing awaits, where CPython warns of them
        self.thrown: set[type] = {GeneratorExit}  # beside Exceptions, what C code may raise in an async generator

    def get(self, key: int, default: object = None) -> Any:
        found = dict.get(self, key)
        if found is None and key in self.vm.heap.by_standin:
            found = adopt(self.vm, self.vm.heap.by_standin[key])
        return default if found is None else found

    def dropped(self, key: int) -> None:
        body = dict.pop(self, key, None)
        if body is not None and not body.started and not body.done and body.kind == "coroutine":
            self.unawaited = self.unawaited or self.live

    def begin(self, step: object) -> None:
        """A step of an async generator, itself or by `anext` with a default, is awaited."""
        if self.unbegun:
            for each in (step, *gc.get_referents(step)):
                self.unbegun.pop(id(each), None)

    def end(self) -> None:
        """At the end of the trace: no body of the program is run any more."""
        self.live = False
        self.unawaited = self.unawaited or bool(self.unbegun)
        while self.unbegun:  # they would warn as they die
            with contextlib.suppress(RuntimeError):
                self.unbegun.popitem()[1].close()

    def of(self, value: object) -> Any:
        """The body of a generator, or of the coroutine behind `coroutine.__await__()`."""
        return self.get(id(gc.get_referents(value)[0] if type(value) is AWAITED else value))

    def iterated(self, value: object) -> Any:
        """The same of a value that `for` and next() take items from."""
        self.begin(value)
        return self.of(value) if type(value) is types.GeneratorType or type(value) is AWAITED else None

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None  # type: ignore[arg-type]

    def __getitem__(self, key: int) -> Any:
        return self.get(key)


def adopt(vm: VM, tracker: VariableTracker) -> Suspended | None:
    """The body of a generator from outside that waits, or is over: its frame, the values unread boxes."""
    generator = tracker.original
    if type(generator) not in ADOPTED:
        return None
    state = frame_of(generator)
    if state is None and not is_over(generator):
        return None
    vm.heap.guard_call(standing_key, standing_key(generator), tracker.source)
    if state is None:
        body = adopted_body(vm, tracker)
        body.done = body.over = True
        body.code = code_of(generator)
        return body
    place = CallOf(Pinned(standing_values), (tracker.source,))
    boxes = iter([Box(vm.heap, value, Index, place, number) for number, value in enumerate(state.values)])
    frame = remade_frame(vm, state.code, state.namespace, state.index, state.slots, state.kinds, lambda: next(boxes))
    body = adopted_body(vm, tracker)
    fill_body(body, frame)
    body.started = state.started
    return body


def adopted_body(vm: VM, tracker: VariableTracker) -> Suspended:
    """The body of a generator from outside, its frame still to be given."""
    body = dict.get(vm.generators, id(tracker.original))
    if body is None:
        body = vm.generators[id(tracker.original)] = Suspended()
        body.adopted = tracker.source
        body.handle = weakref.ref(tracker.original)
    return body


def fill_body(body: Suspended, frame: Frame) -> None:
    body.frame, frame.generator = frame, body
    body.code, body.namespace = frame.code, frame.scope.namespace
    body.exc_state.value = handled_in(frame)


def owned_generator(vm: VM, generator: object) -> Any:
    """A stand-in for a generator that only the suspended frames hold: they drop it, and that closes it."""
    tracker = vm.heap.by_standin[id(generator)]
    body = vm.generators.get(id(generator)) or adopted_body(vm, tracker)  # the latter runs: its frame comes later
    made = body.handle()
    if made is not generator:
        return made
    flags = COROUTINE if type(generator) is types.CoroutineType else 0
    return driven(vm, body, flags, generator.__name__, generator.__qualname__)


def walked_generator(vm: VM, generator: object) -> Any:
    """A stand-in for a generator from outside that C code will run through; it lives as long as the trace."""
    tracker = vm.heap.by_standin.get(id(generator))
    if tracker is None or tracker.original is not generator:
        return generator
    if vm.generators.get(id(generator)) is None:
        raise Break("SB014", f"a {type(generator).__name__} from outside")  # C code would advance the user's own
    made = owned_generator(vm, generator)
    vm.heap.kept.append(made)
    vm.heap.by_standin[id(made)] = tracker  # C code may hand it on to the program
    return made


def handled_in(frame: Frame) -> BaseException | None:
    """The exception that a frame made anew handles."""
    return next((item.current for item in reversed(frame.stack) if type(item) is SavedExc), None)


def remade_frame(vm: VM, code: types.CodeType, namespace: dict[str, Any], index: int, slots: tuple[int, ...],
                 kinds: tuple[str, ...], box: Any, dead: int = 0) -> Frame:
    """A frame in the middle of its code, values from `box`: locals (the last `dead` are never read), then the stack."""
    unit = decode(code)
    places: list[Any] = [UNBOUND] * unit.nlocalsplus
    for slot in slots:
        places[slot] = box()
    unread = slots[len(slots) - dead:]
    for slot in (*unit.cell_slots, *unit.free_slots):  # cells are passed as cells: the frame works on their shadows
        if slot not in unread and type(places[slot]) is Box and type(places[slot].raw) is types.CellType:
            places[slot] = places[slot].force()
    # A function object for the frame: only its code, name and globals are looked at.
    closure = tuple(types.CellType() for _ in code.co_freevars)
    function = types.FunctionType(code, namespace, code.co_name, None, closure or None)
    vm.fresh[id(function)] = function
    frame = Frame(unit, program_of(unit), function, places, vm.heap.scope(namespace))
    frame.ip = index
    frame.stack = stack_of(kinds, lambda: unbox(box()))
    return frame
