"""An event loop, tasks and futures in Python, which the trace interprets.   Loop().create_task(coro)  ->  a Task

In: coroutines and callbacks.  Out: their values, in the order in which asyncio runs them.  Functions without a body
are rules of `event_loop`: they know the trace.  The clock of the loop stands still while a task runs.
"""

from __future__ import annotations

import _asyncio
import heapq
from asyncio import base_events, coroutines, exceptions, unix_events
from collections import deque
from collections.abc import Callable, Coroutine, Generator

PLAIN_LOOP = unix_events._UnixSelectorEventLoop
_PENDING, _CANCELLED, _DONE = "PENDING", "CANCELLED", "FINISHED"


def remember(future: object) -> None: ...
def snapshot() -> Snapshot: ...  # type: ignore[empty-body]
def enter(task: object) -> object: ...
def leave(task: object, outer: object) -> None: ...
def enter_context(context: object) -> object: ...
def leave_context(context: object, outer: object) -> None: ...
def set_running(loop: object) -> object: ...
def pause(seconds: float) -> None: ...
def require_ended() -> None: ...
def refuse_text() -> str: ...  # type: ignore[empty-body]
def refuse_wait() -> None: ...
def refuse_exit() -> None: ...
def refuse_callback() -> None: ...
def refuse_awaited() -> None: ...


class Snapshot:
    """Context of a task: values of context variables that the trace has set."""

    def __init__(self, sets: list[object]) -> None:
        self.sets = sets


class Handle:
    """A callback that waits for its turn."""

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...], context: Snapshot,
                 when: float) -> None:
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
    _loop: Loop
    _log_destroy_pending = True

    def __init__(self, *, loop: Loop) -> None:
        self._loop, self._state = loop, _PENDING
        self._result: object = None
        self._exception: BaseException | None = None
        self._retrieved = True
        self._message: object = None
        self._callbacks: list[tuple[Callable[..., object], Snapshot]] = []
        remember(self)

    def __getattr__(self, name: str) -> object:
        if hasattr(_asyncio.Task, name):
            return refuse_text()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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

    def add_done_callback(self, fn: Callable[..., object], *, context: Snapshot | None = None) -> None:
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

    def set_exception(self, exception: BaseException | type[BaseException]) -> None:
        if self._state != _PENDING:
            raise exceptions.InvalidStateError("invalid state")
        error = exception() if isinstance(exception, type) else exception
        if type(error) is StopIteration:
            raise TypeError("StopIteration interacts badly with generators and cannot be raised into a Future")
        self._exception, self._state, self._retrieved = error, _DONE, False
        self._schedule()

    def __await__(self) -> Generator[Future, None, object]:
        if self._state == _PENDING:
            self._asyncio_future_blocking = True
            yield self
        if self._state == _PENDING:
            raise RuntimeError("await wasn't used with future")
        return self.result()

    __iter__ = __await__

    def __repr__(self) -> str:
        return refuse_text()

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # isinstance() asks for it
        return _asyncio.Future


class Task(Future):
    """A coroutine that the loop runs from one await to the next."""

    def __init__(self, coro: Coroutine[object, None, object], loop: Loop, name: str | None,
                 context: Snapshot | None) -> None:
        Future.__init__(self, loop=loop)
        self._coro, self._name, self._requests = coro, name, 0
        self._waiter: Future | None = None
        self._must_cancel = False
        self._context = snapshot() if context is None else context
        loop.unfinished.append(self)
        loop.call_soon(self._step, context=self._context)

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # isinstance() asks for it
        return _asyncio.Task

    def get_coro(self) -> object:
        return self._coro

    def get_name(self) -> object:
        return refuse_text() if self._name is None else self._name

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

    def _wait_for(self, waited: object) -> None:
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

    def _wake(self, future: Future) -> None:
        try:
            future.result()
        except BaseException as error:
            self._step(error)
        else:
            self._step()


class Loop:
    """An event loop without sockets; `face` is the loop that the program sees."""

    def __init__(self, face: object = None) -> None:
        self.face: object = self if face is None else face
        self.ready: deque[Handle] = deque()
        self.timers: list[Handle] = []
        self.unfinished: list[Task] = []
        self.now, self.stopping, self.closed, self.runs = 0.0, False, False, False

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # isinstance() asks for it
        return PLAIN_LOOP

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

    def create_task(self, coro: Coroutine[object, None, object], *, name: object = None,
                    context: Snapshot | None = None) -> Task:
        self._check_closed()
        if not coroutines.iscoroutine(coro):
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        return Task(coro, self, name if name is None else str(name), context)

    def create_future(self) -> Future:
        return Future(loop=self)

    def call_soon(self, callback: Callable[..., object], *args: object, context: Snapshot | None = None) -> Handle:
        self._check_closed()
        handle = Handle(callback, args, snapshot() if context is None else context, self.now)
        self.ready.append(handle)
        return handle

    def call_later(self, delay: float, callback: Callable[..., object], *args: object,
                   context: Snapshot | None = None) -> Handle:
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
