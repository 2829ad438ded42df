"""Rules for asyncio.   asyncio.run(main())  ->  its coroutines, interpreted in turn by an event loop of the trace

In: a coroutine, and a loop that is made inside or is idle.  Out: the value of the coroutine, its effects, and a sleep
where every task waits for a time.  `asyncio.run` and `run_until_complete` of the standard library are interpreted;
the tasks, the futures and the clock behind them are those below.  The clock stands still while a task runs.
A loop that waits for anything else than a time, debugs, or has work of its own breaks.  So does a task, future or loop
that leaves the call, an async generator that is not over with its loop, and an exception that nobody retrieves.
"""

from __future__ import annotations

import _asyncio
import contextvars
import heapq
import signal
import sys
import time
import types
import weakref
from asyncio import base_events, coroutines, events, exceptions, runners, tasks, unix_events
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from stator.breaks import Break
from stator.interp.frame import Raised
from stator.interp.noted_effects import PlainCall, note
from stator.interp.rule_registry import LISTED, rule
from stator.interp.vm import VM
from stator.source import CallOf, Pinned

_PLAIN_LOOP, _POLICY = unix_events._UnixSelectorEventLoop, unix_events._UnixDefaultEventLoopPolicy
_PENDING, _CANCELLED, _DONE = "PENDING", "CANCELLED", "FINISHED"


@dataclass(eq=False)
class LoopState:
    """Event loops of one trace."""

    running: object = None  # as the program sees it: a Loop, or a loop from outside
    current: object = None  # of asyncio.set_event_loop
    is_set: bool = False
    behind: dict[int, Loop] = field(default_factory=dict)  # id of a loop from outside -> the one that runs its tasks
    task: object = None
    outer_sets: list[list[object]] = field(default_factory=list)  # values of context variables outside a running task
    futures: list[Any] = field(default_factory=list)
    generators: list[Any] = field(default_factory=list)  # async generators that were begun in a loop: (weak, body)
    dropped: list[object] = field(default_factory=list)  # bodies of those that died before they were over
    signals: dict[int, tuple[object, object]] = field(default_factory=dict)  # -> (the handler before, the one now)


class Snapshot:
    """Context of a task: values of context variables that the trace has set."""

    def __init__(self, sets: list[object]) -> None:
        self.sets = sets


class Handle:
    """A callback that waits for its turn."""

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...], context: Any, when: float) -> None:
        self.callback, self.args, self.context, self.at, self.is_cancelled = callback, args, context, when, False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def __lt__(self, other: Handle) -> bool:
        return self.at < other.at


class Future:
    """A future of asyncio; `_asyncio_future_blocking` marks it as one."""

    _asyncio_future_blocking = False
    _loop: Any = None
    _log_destroy_pending = True

    def __init__(self, *, loop: Any) -> None:
        self._loop, self._state, self._result = loop, _PENDING, None
        self._exception: BaseException | None = None
        self._retrieved, self._message = True, None
        self._callbacks: list[tuple[Callable[..., object], object]] = []
        remember(self)

    def get_loop(self) -> object:
        return self._loop.face

    def cancelled(self) -> bool:
        return self._state == _CANCELLED

    def done(self) -> bool:
        return self._state != _PENDING

    def cancel(self, msg: object = None) -> bool:
        if self._state != _PENDING:
            return False
        self._state, self._message = _CANCELLED, msg
        self._schedule()
        return True

    def _schedule(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback, context in callbacks:
            self._loop.call_soon(callback, self, context=context)

    def _make_cancelled_error(self) -> BaseException:
        return exceptions.CancelledError() if self._message is None else exceptions.CancelledError(self._message)

    def result(self) -> object:
        if self._state == _CANCELLED:
            raise self._make_cancelled_error()
        if self._state != _DONE:
            raise exceptions.InvalidStateError("Result is not set.")
        self._retrieved = True
        if self._exception is not None:
            raise self._exception
        return self._result

    def exception(self) -> BaseException | None:
        if self._state == _CANCELLED:
            raise self._make_cancelled_error()
        if self._state != _DONE:
            raise exceptions.InvalidStateError("Exception is not set.")
        self._retrieved = True
        return self._exception

    def add_done_callback(self, fn: Callable[..., object], *, context: object = None) -> None:
        if self._state != _PENDING:
            self._loop.call_soon(fn, self, context=context)
        else:
            self._callbacks.append((fn, snapshot() if context is None else context))

    def remove_done_callback(self, fn: object) -> int:
        kept = [each for each in self._callbacks if each[0] != fn]
        removed, self._callbacks = len(self._callbacks) - len(kept), kept
        return removed

    def set_result(self, result: object) -> None:
        if self._state != _PENDING:
            raise exceptions.InvalidStateError("invalid state")
        self._result, self._state = result, _DONE
        self._schedule()

    def set_exception(self, exception: Any) -> None:
        if self._state != _PENDING:
            raise exceptions.InvalidStateError("invalid state")
        error = exception() if isinstance(exception, type) else exception
        if type(error) is StopIteration:
            raise TypeError("StopIteration interacts badly with generators and cannot be raised into a Future")
        self._exception, self._state, self._retrieved = error, _DONE, False
        self._schedule()

    def __await__(self) -> Generator[Any, None, object]:
        if self._state == _PENDING:
            self._asyncio_future_blocking = True
            yield self
        if self._state == _PENDING:
            raise RuntimeError("await wasn't used with future")
        return self.result()

    __iter__ = __await__

    def __repr__(self) -> str:
        return refuse_text()  # type: ignore[no-any-return]

    @property
    def __class__(self) -> type:  # isinstance() asks for it
        return _asyncio.Future


class Task(Future):
    """A coroutine that the loop runs from one await to the next."""

    def __init__(self, coro: Any, loop: Any, name: object, context: Any) -> None:
        Future.__init__(self, loop=loop)
        self._coro, self._name, self._waiter, self._requests = coro, name, None, 0
        self._must_cancel = False
        self._context = snapshot() if context is None else context
        loop.unfinished.append(self)
        loop.call_soon(self._step, context=self._context)

    @property
    def __class__(self) -> type:
        return _asyncio.Task

    def get_coro(self) -> object:
        return self._coro

    def get_name(self) -> object:
        return self._name if self._name is not None else refuse_text()

    def set_name(self, value: object) -> None:
        self._name = str(value)

    def cancelling(self) -> int:
        return self._requests

    def uncancel(self) -> int:
        self._requests = max(self._requests - 1, 0)
        return self._requests

    def cancel(self, msg: object = None) -> bool:
        if self._state != _PENDING:
            return False
        self._requests += 1
        if self._waiter is not None and self._waiter.cancel(msg=msg):
            return True
        self._must_cancel, self._message = True, msg
        return True

    def _step(self, error: BaseException | None = None) -> None:
        if self._must_cancel:
            if not isinstance(error, exceptions.CancelledError):
                error = self._make_cancelled_error()
            self._must_cancel = False
        self._waiter = None
        outer = enter(self)
        try:
            waited = self._coro.send(None) if error is None else self._coro.throw(error)
        except StopIteration as stop:
            if self._must_cancel:
                self._must_cancel = False
                Future.cancel(self, self._message)
            else:
                Future.set_result(self, stop.value)
        except exceptions.CancelledError:
            Future.cancel(self)
        except (KeyboardInterrupt, SystemExit):
            refuse_exit()
        except BaseException as raised:
            Future.set_exception(self, raised)
        else:
            self._wait_for(waited)
        finally:
            leave(self, outer)
            error = None
        if self._state != _PENDING:
            self._loop.unfinished.remove(self)

    def _wait_for(self, waited: Any) -> None:
        if waited is None:
            self._loop.call_soon(self._step, context=self._context)
        elif isinstance(waited, Future) and waited._asyncio_future_blocking and waited is not self \
                and waited._loop is self._loop:
            waited._asyncio_future_blocking = False
            waited.add_done_callback(self._wake, context=self._context)
            self._waiter = waited
            if self._must_cancel and waited.cancel(msg=self._message):
                self._must_cancel = False
        else:
            refuse_awaited()

    def _wake(self, future: Any) -> None:
        try:
            future.result()
        except BaseException as error:
            self._step(error)
        else:
            self._step()


class Loop:
    """An event loop without sockets; `face` is the loop that the program sees."""

    def __init__(self, face: object = None) -> None:
        self.face: Any = self if face is None else face
        self.ready: deque[Handle] = deque()
        self.timers: list[Handle] = []
        self.unfinished: list[Task] = []
        self.now, self.stopping, self.closed, self.runs = 0.0, False, False, False

    @property
    def __class__(self) -> type:
        return _PLAIN_LOOP

    def __getattr__(self, name: str) -> object:
        return refuse_text()

    def _check_closed(self) -> None:
        if self.closed:
            raise RuntimeError("Event loop is closed")

    def _check_running(self) -> None:
        if self.runs:
            raise RuntimeError("This event loop is already running")
        if _asyncio._get_running_loop() is not None:
            raise RuntimeError("Cannot run the event loop while another loop is running")

    def create_task(self, coro: Any, *, name: object = None, context: object = None) -> Task:
        self._check_closed()
        if not coroutines.iscoroutine(coro):
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        return Task(coro, self, name if name is None else str(name), context)

    def create_future(self) -> Future:
        return Future(loop=self)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Handle:
        self._check_closed()
        handle = Handle(callback, args, snapshot() if context is None else context, self.now)
        self.ready.append(handle)
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Handle:
        if delay is None:
            raise TypeError("delay must not be None")
        self._check_closed()
        handle = Handle(callback, args, snapshot() if context is None else context, self.now + delay)
        heapq.heappush(self.timers, handle)
        return handle

    def run_forever(self) -> None:
        self._check_closed()
        self._check_running()
        outer = set_running(self.face)
        self.runs = True
        try:
            while not self.stopping:
                self.run_once()
        finally:
            self.stopping = self.runs = False
            set_running(outer)

    def run_once(self) -> None:
        while self.timers and self.timers[0].is_cancelled:
            heapq.heappop(self.timers)
        if not self.ready and not self.stopping:
            if not self.timers:
                refuse_wait()
            pause(self.timers[0].at - self.now)
            self.now = max(self.now, self.timers[0].at)
        while self.timers and self.timers[0].at <= self.now:
            self.ready.append(heapq.heappop(self.timers))
        for _ in range(len(self.ready)):
            handle = self.ready.popleft()
            if not handle.is_cancelled:
                self.run_callback(handle)

    def run_callback(self, handle: Handle) -> None:
        outer = enter_context(handle.context)
        try:
            handle.callback(*handle.args)
        except BaseException:
            refuse_callback()
        finally:
            leave_context(handle.context, outer)

    def stop(self) -> None:
        self.stopping = True

    def is_running(self) -> bool:
        return self.runs

    def is_closed(self) -> bool:
        return self.closed

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        if enabled:
            refuse_text()

    async def shutdown_asyncgens(self) -> None:
        require_ended()

    async def shutdown_default_executor(self, timeout: object = None) -> None:
        pass

    def close(self) -> None:
        if self.runs:
            raise RuntimeError("Cannot close a running event loop")
        self.closed = True
        self.ready.clear()
        self.timers.clear()

    run_until_complete = base_events.BaseEventLoop.run_until_complete


OF_LOOPS = (Handle, Future, Task, Loop, Snapshot)
_SHARED = [name for name, value in vars(Loop).items() if type(value) is types.FunctionType
           and type(vars(base_events.BaseEventLoop).get(name)) is types.FunctionType
           and name not in ("__init__", "run_until_complete", "close", "set_debug")]


def remember(future: object) -> None: ...
def snapshot() -> Any: ...
def enter(task: object) -> Any: ...
def leave(task: object, outer: object) -> None: ...
def enter_context(context: object) -> Any: ...
def leave_context(context: object, outer: object) -> None: ...
def set_running(loop: object) -> Any: ...
def pause(seconds: float) -> None: ...
def require_ended() -> None: ...
def refuse_text() -> Any: ...
def refuse_wait() -> None: ...
def refuse_exit() -> None: ...
def refuse_callback() -> None: ...
def refuse_awaited() -> None: ...


def state_of(vm: VM) -> LoopState:
    if vm.contexts.loops is None:
        vm.contexts.loops = LoopState()
        vm.heap.guard_call(_asyncio._get_running_loop, None)
    return vm.contexts.loops  # type: ignore[no-any-return]


for _function, _cause in ((refuse_text, "the text, name or mode of a task or loop"),
                          (refuse_wait, "an event loop that waits for something else than a time"),
                          (refuse_exit, "KeyboardInterrupt or SystemExit in a task"),
                          (refuse_callback, "a callback of an event loop that raises"),
                          (refuse_awaited, "a task that awaits something else than a future of its loop")):
    @rule(_function)
    def _refused(vm: VM, cause: str = _cause) -> None:
        raise Break("SB018", cause)

rule(remember)(lambda vm, future: state_of(vm).futures.append(future))
rule(snapshot)(lambda vm: Snapshot([*vm.contexts.sets]))
rule(pause)(lambda vm, seconds: note(vm, PlainCall(time.sleep, (seconds,), {}), False) if seconds > 0 else None)


@rule(enter_context)
def _enter_context(vm: VM, context: Any) -> Any:
    outer, vm.contexts.sets = vm.contexts.sets, context.sets
    return outer


@rule(leave_context)
def _leave_context(vm: VM, context: Any, outer: Any) -> None:
    context.sets, vm.contexts.sets = vm.contexts.sets, outer


@rule(enter)
def _enter(vm: VM, task: object) -> object:
    state = state_of(vm)
    outer, state.task = state.task, task
    return outer


@rule(leave)
def _leave(vm: VM, task: object, outer: object) -> None:
    state_of(vm).task = outer


@rule(set_running)
def _set_running(vm: VM, loop: object) -> object:
    state = state_of(vm)
    outer, state.running = state.running, loop
    return outer


def is_idle(loop: Any) -> bool:
    """A pure reader for guards: whether a loop from outside has nothing to do, and no settings of its own."""
    own = loop.__dict__
    return type(loop) is _PLAIN_LOOP and own["_thread_id"] is None and not any(
        own[name] for name in ("_ready", "_scheduled", "_closed", "_stopping", "_debug", "_exception_handler",
                               "_task_factory", "_signal_handlers")) \
        and len(own["_asyncgens"].data) == 0 and len(loop._selector.get_map()) == 1


def has_plain_policy() -> bool:
    """A pure reader for guards: whether loops are made as asyncio makes them, without debugging."""
    policy = events._event_loop_policy  # type: ignore[attr-defined]
    return (policy is None or type(policy) is _POLICY and policy._watcher is None) and not coroutines._is_debug_mode()  # type: ignore[attr-defined]


def loop_behind(vm: VM, loop: Any) -> Any:
    """The loop of the trace that runs the tasks of a loop from outside."""
    tracker = vm.heap.tracker_of(loop)
    if tracker is None:
        return loop
    state = state_of(vm)
    if id(loop) not in state.behind:
        if not is_idle(tracker.original):
            raise Break("SB018", "an event loop from outside that is not idle")
        vm.heap.guard_call(is_idle, True, tracker.source)
        state.behind[id(loop)] = vm.call_sync(Loop, (loop,))
    return state.behind[id(loop)]


def _copied(function: Any) -> types.FunctionType:
    """The same function without its rule."""
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return made


def _shared(name: str) -> None:
    own = vars(Loop)[name]

    @rule(vars(base_events.BaseEventLoop)[name])
    def call(vm: VM, loop: Any, /, *args: Any, **kwargs: Any) -> object:
        return vm.call_sync(own, (loop_behind(vm, loop), *args), kwargs)


for _name in _SHARED:
    _shared(_name)

_run, _run_until_complete = _copied(runners.run), _copied(base_events.BaseEventLoop.run_until_complete)


@rule(runners.run)
def _run_main(vm: VM, /, *args: Any, **kwargs: Any) -> object:
    return vm.call_sync(_run, args, kwargs)


@rule(base_events.BaseEventLoop.run_until_complete)
def _complete(vm: VM, loop: Any, future: object) -> object:
    loop_behind(vm, loop)
    return vm.call_sync(_run_until_complete, (loop, future))


@rule(events.new_event_loop)
def _new_loop(vm: VM) -> object:
    if not has_plain_policy():
        raise Break("SB018", "an event loop of another policy than asyncio's, or with debugging")
    state_of(vm)
    vm.heap.guard_call(has_plain_policy, True)
    return vm.call_sync(Loop, ())


@rule(events.set_event_loop)
def _set_loop(vm: VM, loop: object) -> None:
    if not has_plain_policy() or vm.heap.tracker_of(loop) is not None:
        raise Break("SB018", "asyncio.set_event_loop with a loop or policy from outside")
    vm.heap.guard_call(has_plain_policy, True)
    state = state_of(vm)
    state.current, state.is_set = loop, True
    if loop is None:
        note(vm, PlainCall(events.set_event_loop, (None,), {}), False)


@rule(_asyncio._get_running_loop)
def _running(vm: VM) -> object:
    return state_of(vm).running


@rule(_asyncio.get_running_loop)
def _running_or_error(vm: VM) -> object:
    if (running := state_of(vm).running) is None:
        raise Raised(RuntimeError("no running event loop"))
    return running


@rule(_asyncio.get_event_loop, *[getattr(_asyncio, name) for name in ("_get_event_loop",) if hasattr(_asyncio, name)])
def _event_loop(vm: VM, stacklevel: int = 3) -> object:
    state = state_of(vm)
    if state.running is None and state.current is None:
        raise Break("SB018", "asyncio.get_event_loop outside a loop")
    return state.running or state.current


@rule(_asyncio.Future)
def _make_future(vm: VM, /, *args: Any, **kwargs: Any) -> object:
    loop = kwargs.pop("loop", None) or state_of(vm).running
    if args or kwargs or loop is None:
        raise Break("SB018", "a future outside an event loop")
    return vm.call_sync(Future, (), {"loop": loop_behind(vm, loop)})


@rule(tasks.current_task)
def _current_task(vm: VM, loop: object = None) -> object:
    state = state_of(vm)
    if loop is not None and loop is not state.running:
        raise Break("SB018", "asyncio.current_task of another loop")
    if state.running is None:
        raise Raised(RuntimeError("no running event loop"))
    return state.task


@rule(tasks.all_tasks)
def _all_tasks(vm: VM, loop: object = None) -> object:
    state = state_of(vm)
    loop = state.running if loop is None else loop
    if loop is None:
        raise Raised(RuntimeError("no running event loop"))
    return {*loop_behind(vm, loop).unfinished}


@rule(contextvars.copy_context)
def _copy_context(vm: VM) -> object:
    if vm.running.code is not runners.Runner._lazy_init.__code__:  # type: ignore[attr-defined]
        raise Break("SB013", "contextvars.copy_context reads the whole current context")
    return Snapshot([*vm.contexts.sets])


@rule(signal.getsignal)
def _signal_handler(vm: VM, signalnum: int) -> object:
    signals = state_of(vm).signals
    if signalnum in signals:
        return signals[signalnum][1]
    return vm.heap.adopt(signal.getsignal(signalnum), CallOf(Pinned(signal.getsignal), (Pinned(signalnum),)))


@rule(signal.signal)
def _set_signal(vm: VM, signalnum: int, handler: object) -> object:
    before = _signal_handler(vm, signalnum)
    signals = state_of(vm).signals
    signals[signalnum] = (signals[signalnum][0] if signalnum in signals else before, handler)
    return before


@rule(sys.get_asyncgen_hooks)
def _hooks(vm: VM) -> object:
    if vm.contexts.loops is not None and vm.contexts.loops.running is not None:
        raise Break("SB018", "hooks for async generators, which a loop sets")
    return LISTED


def note_generator(vm: VM, generator: object) -> None:
    """An async generator is begun: a running loop has to end it."""
    state = vm.contexts.loops
    if state is not None and state.running is not None and not any(each() is generator for each, _ in state.generators):
        body = vm.generators[id(generator)]
        state.generators.append((weakref.ref(generator, lambda _: body.done or state.dropped.append(body)), body))


def _alive(state: LoopState) -> Iterator[object]:
    return (body for _, body in state.generators if body.started and not body.done)


@rule(require_ended)
def _require_ended(vm: VM) -> None:
    if any(_alive(state_of(vm))):
        raise Break("SB018", "an async generator that is not over with its event loop")


def refuse_unfinished(vm: VM) -> None:
    """Break at the end of a call that leaves an event loop something to do, or to report."""
    state: LoopState | None = vm.contexts.loops
    if state is None:
        return
    loops = state.behind.values()
    left = state.dropped or any(each.ready or each.timers or each.unfinished for each in loops) or any(_alive(state))
    unheard = any(not each._retrieved for each in state.futures)
    changed = any(before is not now for before, now in state.signals.values())
    if left or unheard or changed or state.running is not None or state.current is not None:
        raise Break("SB018", "an event loop, a task or a signal handler that outlives the call", whole_call=True)
