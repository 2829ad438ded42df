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
import signal
import sys
import time
import types
import weakref
from asyncio import base_events, coroutines, events, runners, tasks, unix_events
from collections.abc import Iterator
from dataclasses import dataclass, field

from stator.breaks import Break
from stator.interp.frame import Raised
from stator.interp.generators.generators import Suspended
from stator.interp.noted_effects import PlainCall, note
from stator.interp.rule_registry import LISTED, rule
from stator.interp.vm import VM
from stator.library.asynchronous import loop_tasks as own
from stator.library.asynchronous.loop_tasks import PLAIN_LOOP, Future, Loop, Snapshot
from stator.source import CallOf, Pinned

_POLICY = unix_events._UnixDefaultEventLoopPolicy


@dataclass(eq=False)
class LoopState:
    """Event loops of one trace."""

    running: object = None  # as the program sees it: a Loop, or a loop from outside
    current: object = None  # of asyncio.set_event_loop
    is_set: bool = False
    behind: dict[int, Loop] = field(default_factory=dict)  # id of a loop from outside -> the one that runs its tasks
    task: object = None
    outer_sets: list[list[object]] = field(default_factory=list)  # values of context variables outside a running task
    futures: list[Future] = field(default_factory=list)
    generators: list[tuple[weakref.ref[object], Suspended]] = field(default_factory=list)  # async ones, begun in a loop
    dropped: list[object] = field(default_factory=list)  # bodies of those that died before they were over
    signals: dict[int, tuple[object, object]] = field(default_factory=dict)  # -> (the handler before, the one now)


_SHARED = [name for name, value in vars(Loop).items() if type(value) is types.FunctionType
           and type(vars(base_events.BaseEventLoop).get(name)) is types.FunctionType
           and name not in ("__init__", "run_until_complete", "close", "set_debug")]


def state_of(vm: VM) -> LoopState:
    if vm.contexts.loops is None:
        vm.contexts.loops = LoopState()
        vm.heap.guard_call(_asyncio._get_running_loop, None)
    return vm.contexts.loops  # type: ignore[no-any-return]


for _function, _cause in ((own.refuse_text, "the text, name or mode of a task or loop"),
                          (own.refuse_wait, "an event loop that waits for something else than a time"),
                          (own.refuse_exit, "KeyboardInterrupt or SystemExit in a task"),
                          (own.refuse_callback, "a callback of an event loop that raises"),
                          (own.refuse_awaited, "a task that awaits something else than a future of its loop")):
    @rule(_function)
    def _refused(vm: VM, cause: str = _cause) -> None:
        raise Break("SB018", cause)

rule(own.remember)(lambda vm, future: state_of(vm).futures.append(future))
rule(own.snapshot)(lambda vm: Snapshot([*vm.contexts.sets]))
rule(own.pause)(lambda vm, seconds: note(vm, PlainCall(time.sleep, (seconds,), {}), False) if seconds > 0 else None)


@rule(own.enter_context)
def _enter_context(vm: VM, context: Snapshot) -> list[object]:
    outer, vm.contexts.sets = vm.contexts.sets, context.sets
    return outer


@rule(own.leave_context)
def _leave_context(vm: VM, context: Snapshot, outer: list[object]) -> None:
    context.sets, vm.contexts.sets = vm.contexts.sets, outer


@rule(own.enter)
def _enter(vm: VM, task: object) -> object:
    state = state_of(vm)
    outer, state.task = state.task, task
    return outer


@rule(own.leave)
def _leave(vm: VM, task: object, outer: object) -> None:
    state_of(vm).task = outer


@rule(own.set_running)
def _set_running(vm: VM, loop: object) -> object:
    state = state_of(vm)
    outer, state.running = state.running, loop
    return outer


def is_idle(loop: unix_events._UnixSelectorEventLoop) -> bool:
    """A pure reader for guards: whether a loop from outside has nothing to do, and no settings of its own."""
    parts = loop.__dict__
    return type(loop) is PLAIN_LOOP and parts["_thread_id"] is None and not any(
        parts[name] for name in ("_ready", "_scheduled", "_closed", "_stopping", "_debug", "_exception_handler",
                               "_task_factory", "_signal_handlers")) \
        and len(parts["_asyncgens"].data) == 0 and len(parts["_selector"].get_map()) == 1


def has_plain_policy() -> bool:
    """A pure reader for guards: whether loops are made as asyncio makes them, without debugging."""
    policy = events._event_loop_policy  # type: ignore[attr-defined]
    return (policy is None or type(policy) is _POLICY and policy._watcher is None) and not coroutines._is_debug_mode()  # type: ignore[attr-defined]


def loop_behind(vm: VM, loop: object) -> Loop:
    """The loop of the trace that runs the tasks of a loop from outside."""
    tracker = vm.heap.tracker_of(loop)
    if tracker is None:
        return loop  # type: ignore[return-value]
    state = state_of(vm)
    if id(loop) not in state.behind:
        if not is_idle(tracker.original):
            raise Break("SB018", "an event loop from outside that is not idle")
        vm.heap.guard_call(is_idle, True, tracker.source)
        state.behind[id(loop)] = vm.call_sync(Loop, (loop,))
    return state.behind[id(loop)]


def _copied(function: types.FunctionType) -> types.FunctionType:
    """The same function without its rule."""
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return made


def _shared(name: str) -> None:
    function = vars(Loop)[name]

    @rule(vars(base_events.BaseEventLoop)[name])
    def call(vm: VM, self: object, *args: object, **kwargs: object) -> object:
        return vm.call_sync(function, (loop_behind(vm, self), *args), kwargs)


for _name in _SHARED:
    _shared(_name)

_run, _run_until_complete = (_copied(function) for function in (  # type: ignore[arg-type]
    runners.run, base_events.BaseEventLoop.run_until_complete))


@rule(runners.run)
def _run_main(vm: VM, /, *args: object, **kwargs: object) -> object:
    return vm.call_sync(_run, args, kwargs)


@rule(base_events.BaseEventLoop.run_until_complete)
def _complete(vm: VM, self: object, future: object) -> object:
    loop_behind(vm, self)
    return vm.call_sync(_run_until_complete, (self, future))


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
def _make_future(vm: VM, /, *args: object, **kwargs: object) -> object:
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
    if vm.contexts.entered:
        return vm.native_unhooked(contextvars.copy_context, ())
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


@rule(own.require_ended)
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
