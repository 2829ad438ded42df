"""Who waits for a suspended frame.   for, next, send, throw, close, yield from  ->  what its next step gives them"""

from __future__ import annotations

import types
from typing import Any, NoReturn

from stator.code.instruction import Instruction
from stator.code.opcodes import SEND_KEEPS
from stator.host.value_kinds import is_a
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.generators.generator_bodies import Suspended, delegate_of
from stator.interp.machine import op
from stator.interp.services import VM


class ToTarget(Continuation):
    """FOR_ITER, SEND: a yield is pushed; what ends the iteration goes on at `target`."""

    __slots__ = ("target",)
    resumes, plain = True, ("target",)

    def __init__(self, target: int) -> None:
        self.target = target

    def yielded(self, vm: VM, frame: Frame, value: object) -> None:
        frame.stack.append(value)


class ForNext(ToTarget):
    """FOR_ITER over an interpreted generator."""

    __slots__ = ()

    def returned(self, vm: VM, frame: Frame, value: Any) -> None:  # the generator is exhausted
        frame.stack.pop()
        frame.ip = self.target


class ForCall(ToTarget):
    """FOR_ITER over an object whose `__next__` is Python code."""

    __slots__ = ()

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        frame.stack.append(value)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, StopIteration):
            return False
        frame.stack.pop()
        frame.ip = self.target
        return True


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

    __slots__ = ("cont",)
    resumes = True

    def __init__(self, cont: Continuation | None) -> None:
        self.cont = cont

    def yielded(self, vm: VM, frame: Frame, value: object) -> None:
        raise Raised(RuntimeError("generator ignored GeneratorExit"))

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        vm.give(None, self.cont)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, (GeneratorExit, StopIteration)):
            return False
        vm.give(None, self.cont)
        return True


class SendNext(ToTarget):
    """SEND: the yield of the inner iterator is passed out, its return value ends the `yield from`."""

    __slots__ = ()

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        end_delegation(frame, value, self.target)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, StopIteration):
            return False
        end_delegation(frame, exc.value, self.target)  # type: ignore[attr-defined]
        return True


def end_delegation(frame: Frame, value: object, target: int) -> None:
    """`value` is what a `yield from` or an `await` comes to; END_SEND, where there is one, drops the delegate."""
    if not SEND_KEEPS:
        frame.stack.pop()
    frame.stack.append(value)
    frame.ip = target


class SendCall(SendNext):
    """SEND to an object whose `send` or `__next__` is called: its value is a yield."""

    __slots__ = ()

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        frame.stack.append(value)


@op
def SEND(vm: VM, frame: Frame, instr: Instruction) -> None:
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
            vm.call(vm.sync(lambda: vm.load_attr(receiver, "send")), (value,), {}, cont)
    except Raised as raised:
        if not cont.raised(vm, frame, raised.exc):
            raise


def resume(vm: VM, body: Suspended, value: Any, cont: Any) -> None:
    """Continue an interpreted generator without recursion."""
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

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        raise Raised(vm.set_context(self.exc))


def _throw_into_delegate(vm: VM, body: Suspended, frame: Frame, delegate: object, exc: BaseException,
                         cont: Continuation | None) -> None:
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

    def __init__(self, send_index: int, target: int) -> None:
        self.send_index, self.target = send_index, target

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
