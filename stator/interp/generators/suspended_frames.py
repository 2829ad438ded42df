"""Suspended frames and their consumers.   for, next, send, throw, close, yield from, await  ->  a step of a body"""

from __future__ import annotations

import types
from typing import Any, NoReturn

from stator import _hook
from stator.breaks import Break
from stator.code.instruction import Instruction
from stator.code.intrinsics import CLOSE_RETURNS
from stator.code.opcodes import SEND_KEEPS
from stator.host.value_kinds import is_a
from stator.interp.frame import Continuation, ExcState, Finished, Frame, Raised
from stator.interp.machine import op
from stator.interp.services import VM

COROUTINE, ITERABLE_COROUTINE, ASYNC_GENERATOR = 0x80, 0x100, 0x200


def _wrapper_type() -> type:
    async def nothing() -> None:
        pass

    coroutine = nothing()
    coroutine.close()
    return type(coroutine.__await__())


AWAITED: Any = _wrapper_type()  # of `coroutine.__await__()`


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
        self.adopted: Any = None  # source of the outside generator with this body
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
        """The iterator that a suspended body delegates to (`gi_yieldfrom`, `cr_await`), or None."""
        return None if self.frame is None or self.running or not self.started else delegate_of(self.frame)

    def enter(self, vm: VM, cont: Continuation | None) -> Frame:
        frame = self.frame
        assert frame is not None
        self.running = self.started = self.entered = True
        self.alive = None if self.handle is None else self.handle()
        self.exc_state.previous = vm.exc_state
        self.saved, vm.exc_state = vm.exc_state, self.exc_state
        frame.is_base = False
        vm.push(frame, cont)
        return frame

    def suspend(self, vm: VM) -> None:
        assert self.saved is not None
        self.running = False
        vm.exc_state, self.saved = self.saved, None
        self.exc_state.previous = None

    def yielded(self, vm: VM, value: object) -> None:
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

    def finished(self, vm: VM, value: object) -> None:
        frame = self.frame
        assert frame is not None
        self.suspend(vm)
        self.done, self.frame, self.alive = True, None, None
        if frame.is_base:
            raise Finished(value)
        parent = vm.frame = frame.parent
        frame.cont.returned(vm, parent, value)

    def failed(self, vm: VM, exc: BaseException) -> BaseException:
        """The body raised: the generator is over; a StopIteration out of it is an error (PEP 479)."""
        self.suspend(vm)
        if is_a(exc, GeneratorExit) and self.frame is not None:  # closed: what it held goes now, not with a traceback
            self.frame.locals.reverse()  # the first local dies first
            self.frame.locals.clear()
            self.frame.stack.clear()
            self.frame.func = None
        self.done, self.frame = True, None
        return stopped_inside(self.kind, exc)


def kind_of(code: types.CodeType) -> str:
    flags = code.co_flags
    return "coroutine" if flags & COROUTINE else "async generator" if flags & ASYNC_GENERATOR else "generator"


def stopped_inside(kind: str, exc: BaseException) -> BaseException:
    """The exception that leaves a body: for StopIteration a RuntimeError (PEP 479)."""
    if is_a(exc, StopIteration) or kind == "async generator" and is_a(exc, StopAsyncIteration):
        error = RuntimeError(f"{kind} raised {type(exc).__name__}")
        error.__cause__ = error.__context__ = exc
        return error
    return exc


def delegate_of(frame: Frame) -> Any:
    """The iterator a suspended frame is delegating to (`yield from`, `await`), or None."""
    instructions = frame.unit.instructions
    following = instructions[frame.ip]
    if following.opname == "RESUME" and (following.arg or 0) & 3 in (2, 3):
        return frame.stack[-1]
    return None


class ToTarget(Continuation):
    """FOR_ITER and SEND to a called `__next__` or `send`: its value is pushed, StopIteration goes on at `target`."""

    __slots__ = ("target",)
    resumes, plain = True, ("target",)

    def end(self, frame: Frame, value: object) -> None:
        raise NotImplementedError

    def yielded(self, vm: VM, frame: Frame, value: object) -> None:
        frame.stack.append(value)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, StopIteration):
            return False
        self.end(frame, exc.value)  # type: ignore[attr-defined]
        return True


class ForCall(ToTarget):
    """FOR_ITER: its end drops the iterator."""

    def end(self, frame: Frame, value: object) -> None:
        frame.stack.pop()
        frame.ip = self.target


class ForNext(ForCall):
    """FOR_ITER over an interpreted generator, whose return is the end."""

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        self.end(frame, value)


class SendCall(ToTarget):
    """SEND: a yield of the inner iterator is passed out, its return value ends the `yield from`."""

    def end(self, frame: Frame, value: object) -> None:
        end_delegation(frame, value, self.target)


class SendNext(SendCall):
    """SEND to an interpreted generator, whose return is the end."""

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        self.end(frame, value)


class NextCall(Continuation):
    """`next(gen)`, `gen.send(v)`, `gen.throw(e)`: a return is StopIteration, or the default."""

    __slots__ = ("cont", "default", "has_default")
    resumes, plain, held = True, ("has_default",), ("default",)

    def __init__(self, cont: Continuation | None, default: object = None, has_default: bool = False) -> None:
        self.cont, self.default, self.has_default = cont, default, has_default

    def yielded(self, vm: VM, frame: Frame, value: object) -> None:
        vm.give(value, self.cont)

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        if self.has_default:
            return vm.give(self.default, self.cont)
        error = StopIteration() if value is None else StopIteration(value)
        if self.cont is not None and self.cont.raised(vm, frame, error):
            return
        raise Raised(error)


class CloseCall(Continuation):
    """`gen.close()`: GeneratorExit (or a return) is what should happen."""

    __slots__ = ("cont", "kind")
    resumes, plain = True, ("kind",)

    def yielded(self, vm: VM, frame: Frame, value: object) -> None:
        raise Raised(RuntimeError(f"{self.kind} ignored GeneratorExit"))

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        vm.give(value if CLOSE_RETURNS else None, self.cont)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, (GeneratorExit, StopIteration)):
            return False
        vm.give(None, self.cont)
        return True


def end_delegation(frame: Frame, value: object, target: int) -> None:
    """`value` is what a `yield from` or an `await` comes to; END_SEND, where there is one, drops the delegate."""
    if not SEND_KEEPS:
        frame.stack.pop()
    frame.stack.append(value)
    frame.ip = target


@op
def SEND(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack.pop()
    receiver = frame.stack[-1]
    body = vm.generators.of(receiver)
    if body is not None and not is_a(receiver, types.AsyncGeneratorType):
        return resume(vm, body, value, SendNext(instr.target))
    cont = SendCall(instr.target)
    try:
        if value is None:
            vm.call_next(receiver, cont)
        else:
            vm.call(vm.sync(lambda: vm.load_attr(receiver, "send")), (value,), {}, cont)
    except Raised as raised:
        if not cont.raised(vm, frame, raised.exc):
            raise


def resume(vm: VM, body: Suspended, value: object, cont: Any) -> None:
    if body.running:
        raise Raised(ValueError(f"{body.kind} already executing"))
    if body.done:
        require_first_await(body)
        return cont.returned(vm, vm.frame, None)
    if not body.started and value is not None:
        raise Raised(TypeError(f"can't send non-None value to a just-started {body.kind}"))
    frame = body.enter(vm, cont)
    frame.stack.append(value)


def throw(vm: VM, body: Suspended, exc: BaseException, cont: Any) -> None:
    """Raise `exc` where an interpreted generator is suspended; `yield from` passes it on."""
    if body.running:
        raise Raised(ValueError(f"{body.kind} already executing"))
    if body.done:
        require_first_await(body)
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
    raise_thrown(vm, exc)


def require_first_await(body: Suspended) -> None:
    """A generator that is over ends at once; a coroutine refuses to be run again."""
    if body.kind == "coroutine":
        raise Raised(RuntimeError("cannot reuse already awaited coroutine"))


def raise_thrown(vm: VM, exc: BaseException) -> NoReturn:
    chain_thrown(vm, exc)
    raise Raised(exc, chained=True)


def chain_thrown(vm: VM, exc: BaseException) -> None:
    """Chain a thrown exception to the one that the generator itself handles; what its caller handles does not count."""
    state = getattr(vm, "exc_state", None)  # below a native frame CPython does it
    if state is not None and state.value is not None and not vm.is_from_outside(exc):
        vm.set_context(exc)


def close(vm: VM, body: Suspended, cont: Continuation | None) -> None:
    if body.done or not body.started:
        body.done, body.frame = True, None
        return vm.give(None, cont)
    throw(vm, body, GeneratorExit(), CloseCall(cont, body.kind))


class RaiseAfter(Continuation):
    """The delegate is closed: the exception that closed it goes on in the frame that delegated."""

    __slots__ = ("exc",)
    resumes, held = True, ("exc",)

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        raise Raised(vm.set_context(self.exc))


def _throw_into_delegate(vm: VM, body: Suspended, frame: Frame, delegate: object, exc: BaseException,
                         cont: Continuation | None) -> None:
    body.enter(vm, cont)
    frame.stack.append(None)
    send_index = next(i for i in range(frame.ip, -1, -1) if frame.unit.instructions[i].opname == "SEND")
    target = frame.unit.instructions[send_index].target
    inner = vm.generators.of(delegate)
    if is_a(exc, GeneratorExit):
        if inner is not None and not is_a(delegate, types.AsyncGeneratorType):
            return close(vm, inner, RaiseAfter(exc))
        try:
            closer = vm.optional_attr(delegate, "close")
        except Raised:  # CPython goes on, and shows the error by sys.unraisablehook
            raise Break("SB015", "an error of a delegate that is looked at for close(): sys.unraisablehook") from None
        if closer is not vm.MISSING:
            return vm.call(closer, (), {}, RaiseAfter(exc))
        raise_thrown(vm, exc)
    send = Redelegated(send_index, target)
    if inner is not None and not is_a(delegate, types.AsyncGeneratorType):
        return throw(vm, inner, exc, send)
    thrower = vm.optional_attr(delegate, "throw")
    if thrower is vm.MISSING:
        raise_thrown(vm, exc)
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

    def yielded(self, vm: VM, frame: Frame, value: object) -> None:
        frame.stack[-1] = value
        frame.ip = self.send_index + 1  # on to the YIELD_VALUE

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        frame.stack.pop()
        end_delegation(frame, value, self.target)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, StopIteration):
            chain_thrown(vm, exc)
            return False
        self.returned(vm, frame, exc.value)  # type: ignore[attr-defined]
        return True


@op
def GET_YIELD_FROM_ITER(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack[-1]
    if is_a(value, types.CoroutineType):
        if not frame.code.co_flags & (COROUTINE | ITERABLE_COROUTINE):
            raise Raised(TypeError("cannot 'yield from' a coroutine object in a non-coroutine generator"))
        return
    if is_a(value, types.GeneratorType):
        return
    vm.get_iter(frame.stack.pop())
