"""Interpreted generators and coroutines, behind real generator objects.

    RETURN_GENERATOR  ->  a real generator whose body drives the interpreted frame

The program sees a genuine generator, coroutine or async generator, so C code can iterate and await it and its
refcount works as usual (dropping it closes the frame).  The loop itself resumes the frame without recursion.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

from stator import _hook
from stator.code.opcodes import SEND_KEEPS
from stator.interp.frame import Continuation, ExcState, Finished, Frame, Raised
from stator.interp.machine import Thunk, op
from stator.kinds import is_a

GENERATOR, COROUTINE, ITERABLE_COROUTINE, ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200


class Yielded:
    """A value an async generator yields (as against what an await inside it sends out)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Suspended:
    """The interpreted body of one generator."""

    __slots__ = ("frame", "started", "done", "running", "exc_state", "saved", "handle", "code", "namespace", "shown",
                 "adopted", "entered", "over", "alive", "__weakref__")

    def __init__(self, frame: Frame | None = None) -> None:
        self.frame: Frame | None = frame
        if frame is not None:
            self.code, self.namespace = frame.code, frame.scope.namespace
        self.started = False
        self.done = False
        self.running = False
        self.exc_state = ExcState()
        self.saved: ExcState | None = None
        self.shown: Any = None  # the frame object the program was shown, whose only true fact is its code
        self.handle: Any = None  # weakref to the object the program holds
        self.adopted: Any = None  # the source of the user's generator whose body this is
        self.entered = False  # it was advanced by this trace
        self.over = False  # it was over before
        self.alive: Any = None  # the object itself while its body runs: a caller's stack would hold it

    @property
    def kind(self) -> str:
        return kind_of(self.code)

    def frame_object(self) -> Any:
        """`gi_frame`: None once the body is over."""
        if self.frame is None:
            return None
        if self.shown is None:
            self.shown = _hook.new_frame(self.code, self.frame.scope.namespace, {})
        return self.shown

    def delegate(self) -> Any:
        """What a suspended body waits for (`gi_yieldfrom`, `cr_await`), or None."""
        return None if self.frame is None or self.running or not self.started else delegate_of(self.frame)

    def enter(self, vm: Any, cont: Any) -> Frame:
        frame = self.frame
        assert frame is not None
        self.running = self.started = self.entered = True
        self.alive = None if self.handle is None else self.handle()
        self.exc_state.previous = vm.exc_state
        self.saved, vm.exc_state = vm.exc_state, self.exc_state
        frame.is_base = False
        vm.push(frame, cont)
        return frame

    def suspend(self, vm: Any) -> None:
        self.running = False
        vm.exc_state, self.saved = self.saved, None
        self.exc_state.previous = None

    def yielded(self, vm: Any, value: Any) -> None:
        frame = self.frame
        assert frame is not None
        self.suspend(vm)
        if frame.is_base:
            self.alive = None
            raise Finished(value, yielded=True)
        parent = vm.frame = frame.parent
        frame.parent = None
        try:
            frame.cont.yielded(vm, parent, value)
        finally:
            self.alive = None  # a temporary nobody else holds is closed now, after its value was taken

    def finished(self, vm: Any, value: Any) -> None:
        frame = self.frame
        assert frame is not None
        self.suspend(vm)
        self.done, self.frame, self.alive = True, None, None
        if frame.is_base:
            raise Finished(value)
        parent = vm.frame = frame.parent
        frame.cont.returned(vm, parent, value)

    def failed(self, vm: Any, exc: BaseException) -> BaseException:
        """The body raised: the generator is over; a StopIteration out of it is an error (PEP 479)."""
        self.suspend(vm)
        self.done, self.frame = True, None
        return stopped_inside(self.kind, exc)


def kind_of(code: types.CodeType) -> str:
    flags = code.co_flags
    return "coroutine" if flags & COROUTINE else "async generator" if flags & ASYNC_GENERATOR else "generator"


def stopped_inside(kind: str, exc: BaseException) -> BaseException:
    """What leaves a body that raised `exc`: a StopIteration that nobody caught is an error (PEP 479)."""
    if is_a(exc, StopIteration) or kind == "async generator" and is_a(exc, StopAsyncIteration):
        error = RuntimeError(f"{kind} raised {type(exc).__name__}")
        error.__cause__ = error.__context__ = exc
        return error
    return exc


# ---------------------------------------------------------------------- real objects


class _Raw:
    """Awaiting this sends `value` out of a coroutine as it is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        return (yield self.value)


def step(vm: Any, body: Suspended, value: Any, exc: BaseException | None) -> tuple[bool, Any]:
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

    __slots__ = ()

    def yielded(self, vm: Any, frame: Frame, value: Any) -> None:
        raise Finished(value, yielded=True)

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        raise Finished(value)


NESTED = Nested()


def drive_generator(vm: Any, body: Suspended) -> Any:
    value, exc = None, None
    try:
        yield None  # primed at once, so that dropping the object always closes the body
        while True:
            more, result = step(vm, body, value, exc)
            if not more:
                return result
            value = exc = None
            try:
                value = yield result
            except BaseException as error:
                exc = error
                exc.__traceback__ = None
    except GeneratorExit:
        _close_dropped(vm, body)


def _close_dropped(vm: Any, body: Suspended) -> None:
    if body.started and not body.done and not body.running and vm.live:
        try:
            step(vm, body, None, GeneratorExit())
        except (GeneratorExit, StopIteration):
            pass


async def drive_coroutine(vm: Any, body: Suspended) -> Any:
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
                exc = error
                exc.__traceback__ = None
    except GeneratorExit:
        _close_dropped(vm, body)


async def drive_async_generator(vm: Any, body: Suspended) -> Any:
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
            exc = error
            exc.__traceback__ = None


def make_generator(vm: Any, frame: Frame) -> Any:
    """The object that calling a generator function returns."""
    body = Suspended(frame)
    frame.generator = body
    flags = frame.code.co_flags
    if flags & ASYNC_GENERATOR:
        made: Any = drive_async_generator(vm, body)
    elif flags & COROUTINE:
        made = drive_coroutine(vm, body)
        made.send(None)
    else:
        made = drive_generator(vm, body)
        next(made)
    func = frame.func
    made.__name__ = func.__name__ if func is not None else frame.code.co_name
    made.__qualname__ = func.__qualname__ if func is not None else frame.code.co_qualname
    bind_body(vm, made, body)
    return made


def bind_body(vm: Any, made: Any, body: Suspended) -> None:
    """`made` is what the program holds of `body`."""
    key = id(made)
    vm.generators[key] = body
    body.handle = weakref.ref(made, lambda _: vm.generators.pop(key, None))


def stand_in_generator(vm: Any, body: Suspended, original: Any) -> Any:
    """What the trace holds in place of a generator from outside: dropping it closes the body, in the trace."""
    if type(original) is types.CoroutineType:
        made: Any = drive_coroutine(vm, body)
        made.send(None)
    else:
        made = drive_generator(vm, body)
        next(made)
    made.__name__, made.__qualname__ = original.__name__, original.__qualname__
    bind_body(vm, made, body)
    return made


# ---------------------------------------------------------------------- opcodes


@op
def RETURN_GENERATOR(vm: Any, frame: Frame, instr: Any) -> None:
    made = make_generator(vm, frame)
    suspended = frame
    parent, cont, is_base = frame.parent, frame.cont, frame.is_base
    suspended.parent = suspended.outer = None
    if is_base:
        raise Finished(made)
    vm.frame = parent
    if cont is None:
        parent.stack.append(made)  # type: ignore[union-attr]
    else:
        cont.returned(vm, parent, made)


@op
def YIELD_VALUE(vm: Any, frame: Frame, instr: Any) -> None:
    frame.generator.yielded(vm, frame.stack.pop())


@op
def ASYNC_GEN_WRAP(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(Yielded(frame.stack.pop()))


class ForNext(Continuation):
    """FOR_ITER over an interpreted generator or a Python `__next__`."""

    __slots__ = ("target",)
    resumes, plain = True, ("target",)

    def __init__(self, target: int) -> None:
        self.target = target

    def yielded(self, vm: Any, frame: Frame, value: Any) -> None:
        frame.stack.append(value)

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:  # the generator is exhausted
        frame.stack.pop()
        frame.ip = self.target


class ForCall(Continuation):
    """FOR_ITER over an object whose `__next__` is Python code."""

    __slots__ = ("target",)
    resumes, plain = True, ("target",)

    def __init__(self, target: int) -> None:
        self.target = target

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        frame.stack.append(value)

    def raised(self, vm: Any, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, StopIteration):
            return False
        frame.stack.pop()
        frame.ip = self.target
        return True


class NextCall(Continuation):
    """`next(gen)`, `gen.send(v)`, `gen.throw(e)`: a return is StopIteration, or the default."""

    __slots__ = ("cont", "default", "has_default")
    resumes, plain, held = True, ("has_default",), ("default",)

    def __init__(self, cont: Any, default: Any = None, has_default: bool = False) -> None:
        self.cont, self.default, self.has_default = cont, default, has_default

    def yielded(self, vm: Any, frame: Frame, value: Any) -> None:
        vm.give(value, self.cont)

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        if self.has_default:
            return vm.give(self.default, self.cont)
        error = StopIteration() if value is None else StopIteration(value)
        if self.cont is not None and self.cont.raised(vm, frame, error):
            return
        raise Raised(error)


class CloseCall(Continuation):
    """`gen.close()`: GeneratorExit (or a return) is what should happen."""

    __slots__ = ("cont",)
    resumes = True

    def __init__(self, cont: Any) -> None:
        self.cont = cont

    def yielded(self, vm: Any, frame: Frame, value: Any) -> None:
        raise Raised(RuntimeError("generator ignored GeneratorExit"))

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        vm.give(None, self.cont)

    def raised(self, vm: Any, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, (GeneratorExit, StopIteration)):
            return False
        vm.give(None, self.cont)
        return True


class SendNext(Continuation):
    """SEND: the yield of the inner iterator is passed out, its return value ends the `yield from`."""

    __slots__ = ("target",)
    resumes, plain = True, ("target",)

    def __init__(self, target: int) -> None:
        self.target = target

    def yielded(self, vm: Any, frame: Frame, value: Any) -> None:
        frame.stack.append(value)

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        end_delegation(frame, value, self.target)

    def raised(self, vm: Any, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, StopIteration):
            return False
        end_delegation(frame, exc.value, self.target)  # type: ignore[attr-defined]
        return True


def end_delegation(frame: Frame, value: Any, target: int) -> None:
    """`value` is what a `yield from` or an `await` comes to; END_SEND, where there is one, drops the delegate."""
    if not SEND_KEEPS:
        frame.stack.pop()
    frame.stack.append(value)
    frame.ip = target


class SendCall(SendNext):
    """SEND to an object whose `send` or `__next__` is called: its value is a yield."""

    __slots__ = ()

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        frame.stack.append(value)


@op
def SEND(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    receiver = frame.stack[-1]
    body = vm.generators.get(id(receiver))
    if body is not None and not is_a(receiver, types.AsyncGeneratorType):
        return resume(vm, body, value, SendNext(instr.target))
    cont = SendCall(instr.target)
    try:
        if value is None:
            vm.call_next(receiver, cont)
        else:
            out: list[Any] = []
            vm.sync(lambda: vm.load_attr(receiver, "send"), out)
            vm.call(out[0], (value,), {}, cont)
    except Raised as raised:
        if not cont.raised(vm, frame, raised.exc):
            raise


def resume(vm: Any, body: Suspended, value: Any, cont: Any) -> None:
    """Continue an interpreted generator without recursion."""
    if body.running:
        raise Raised(ValueError(f"{body.kind} already executing"))
    if body.done:
        return cont.returned(vm, vm.frame, None)
    if not body.started and value is not None:
        raise Raised(TypeError(f"can't send non-None value to a just-started {body.kind}"))
    frame = body.enter(vm, cont)
    frame.stack.append(value)


def throw(vm: Any, body: Suspended, exc: BaseException, cont: Any) -> None:
    """Raise `exc` where an interpreted generator is suspended; `yield from` passes it on."""
    if body.running:
        raise Raised(ValueError(f"{body.kind} already executing"))
    if body.done or not body.started:
        body.done, body.frame = True, None
        if cont.raised(vm, vm.frame, exc):
            return
        raise Raised(exc)
    frame = body.frame
    assert frame is not None
    delegate = delegate_of(frame)
    if delegate is not None:
        return _throw_into_delegate(vm, body, frame, delegate, exc, cont)
    body.enter(vm, cont)
    frame.stack.append(None)  # a thrown exception arrives with None sent, which handlers' depths may count
    raise Raised(vm.set_context(exc))


def close(vm: Any, body: Suspended, cont: Any) -> None:
    """`close()` of an interpreted generator."""
    if body.done or not body.started:
        body.done, body.frame = True, None
        return vm.give(None, cont)
    throw(vm, body, GeneratorExit(), CloseCall(cont))


class RaiseAfter(Continuation):
    """The delegate is closed: the exception that closed it goes on in the frame that delegated."""

    __slots__ = ("exc",)
    resumes, held = True, ("exc",)

    def __init__(self, exc: BaseException) -> None:
        self.exc = exc

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        raise Raised(vm.set_context(self.exc))


def delegate_of(frame: Frame) -> Any:
    """The iterator a suspended frame is delegating to (`yield from`, `await`), or None."""
    instructions = frame.unit.instructions
    following = instructions[frame.ip]
    if following.opname == "RESUME" and (following.arg or 0) & 3 in (2, 3):
        return frame.stack[-1]
    return None


def _throw_into_delegate(vm: Any, body: Suspended, frame: Frame, delegate: Any, exc: BaseException, cont: Any) -> None:
    body.enter(vm, cont)
    frame.stack.append(None)
    send_index = next(i for i in range(frame.ip, -1, -1) if frame.unit.instructions[i].opname == "SEND")
    target = frame.unit.instructions[send_index].target
    inner = vm.generators.get(id(delegate))
    if is_a(exc, GeneratorExit):
        if inner is not None and not is_a(delegate, types.AsyncGeneratorType):
            return close(vm, inner, RaiseAfter(exc))
        closer = vm.optional_attr(delegate, "close")
        if closer is not vm.MISSING:
            return vm.call(closer, (), {}, RaiseAfter(exc))
        raise Raised(vm.set_context(exc))
    send = Redelegated(send_index, target)
    if inner is not None and not is_a(delegate, types.AsyncGeneratorType):
        return throw(vm, inner, exc, send)
    thrower = vm.optional_attr(delegate, "throw")
    if thrower is vm.MISSING:
        raise Raised(vm.set_context(exc))
    try:
        value = vm.call_sync(thrower, (exc,))
    except Raised as raised:
        if not send.raised(vm, frame, raised.exc):
            raise
        return
    send.yielded(vm, frame, value)


class Redelegated(Continuation):
    """After a throw into a delegate: a yield is passed out again, a return ends the delegation."""

    __slots__ = ("send_index", "target")
    resumes, plain = True, ("send_index", "target")

    def __init__(self, send_index: int, target: int) -> None:
        self.send_index, self.target = send_index, target

    def yielded(self, vm: Any, frame: Frame, value: Any) -> None:
        frame.stack[-1] = value
        frame.ip = self.send_index + 1  # on to the YIELD_VALUE

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        frame.stack.pop()
        end_delegation(frame, value, self.target)

    def raised(self, vm: Any, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, StopIteration):
            return False
        self.returned(vm, frame, exc.value)  # type: ignore[attr-defined]
        return True
