"""From a call that no entry accepts to an installed entry.   trace -> check -> emit -> backend -> install -> run

In: a Python function and its settings.  Out: a C++ entry object that holds guarded entries and asks here on a miss.
"""

from __future__ import annotations

import threading
import time
import types
import warnings
import weakref
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from stator import _core, events, marks
from stator.backends.compilation import compile_graph
from stator.breaks import Break
from stator.code.decode import decode
from stator.emit.points import ResumePoint, handling, own_frames_dropped
from stator.emit.residual import Residual, emit_residual
from stator.emit.steps import plan_step
from stator.errors import BackendError, InternalError, Unsupported
from stator.guards.guard import Guard
from stator.guards.lower import Program, lower
from stator.guards.reference import explain as explain_guard
from stator.interp.frame import NULL
from stator.interp.suspend import FrameState, plan_stop, restore, suspend
from stator.interp.trace import Trace, root_frame, trace
from stator.interp.vm import VM
from stator.options import Settings
from stator.shapes.checks import shape_guards
from stator.shapes.policy import Policy

_core.set_own_folder(__file__.rpartition("/")[0])
_lock = threading.RLock()
_tracing = threading.local()
_entries: weakref.WeakSet[Any] = weakref.WeakSet()


@dataclass
class Installed:
    """What one entry was made from; the C++ side keeps it as the entry's tag."""

    program: Program
    guards: list[Guard]
    residual: Residual | None
    why_eager: str = ""
    error: BaseException | None = None  # what the trace raised, where it raised


@dataclass
class CallSite:
    """One `compile()` call: its function, settings and compiled entries."""

    fn: types.FunctionType
    settings: Settings
    name: str
    compiled: Any = None
    limit_told: bool = False
    failures: int = 0
    traces: list[Trace] = field(default_factory=list)
    keep_traces: bool = False
    point: ResumePoint | None = None  # where this site goes on after a graph break; None: at the start
    points: dict[Any, ResumePoint] = field(default_factory=dict)  # of the whole call, shared by its sites
    shapes: Policy = field(init=False)
    data_dependent: bool = True  # numbers that only the graph knows are symbols of it, until a backend refuses them

    def __post_init__(self) -> None:
        self.shapes = Policy(self.settings.dynamic)

    def begin(self, vm: VM, bound: tuple[Any, ...]) -> Any:
        """The frames a trace of this site starts from."""
        vm.recorder.data_dependent = self.data_dependent
        vm.heap.shapes = self.shapes
        if self.point is None:
            return root_frame(vm, self.fn, bound), None, None
        point = self.point
        return restore(vm, point.states, point.names, bound, point.pushes, point.handled, point.raising)


def make_entry(fn: Any, settings: Settings) -> Any:
    """The compiled form of a Python function or bound method."""
    prefix: tuple[Any, ...] = ()
    function = fn
    if isinstance(fn, types.MethodType):
        prefix, function = (fn.__self__,), fn.__func__
    site = CallSite(function, settings, settings.name or getattr(function, "__qualname__", "?"))

    def miss(compiled: Any, bound: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        return on_miss(site, compiled, bound, args, kwargs)

    site.compiled = _core.CompiledFunction(function, miss, prefix)
    site.compiled._stator_site = site
    _entries.add(site.compiled)
    return site.compiled


def reset() -> None:
    """Forget every compiled entry of every compiled function."""
    for compiled in list(_entries):
        compiled.clear()
        compiled._stator_site.limit_told = False


def on_miss(site: CallSite, compiled: Any, bound: tuple[Any, ...], args: tuple[Any, ...],
            kwargs: dict[str, Any] | None) -> Any:
    """No entry accepted the call: capture it, then make it again."""
    def run_eagerly() -> Any:
        return site.fn(*args, **(kwargs or {}))  # args include the receiver of a bound method

    if getattr(_tracing, "active", False) or marks.disable_depth() > 0:
        return _core.EAGER
    installed = compiled.entries()
    if installed:
        report_recompile(site, compiled, bound)
        if site.settings.dynamic is None:
            for _, _, tag in installed:
                if tag is not None:
                    site.shapes.memory.learn(tag.guards, bound)
    if len(installed) >= site.settings.recompile_limit:
        return over_limit(site)
    with _lock:
        _tracing.active = True
        try:
            entry = capture(site, bound)
        finally:
            _tracing.active = False
    if entry is None:
        return _core.EAGER
    program, residual, tag = entry
    compiled.add_entry(program, residual, tag)
    if residual is not _core.EAGER:
        return _core.RETRY
    if tag.error is None or not site.settings.strict:
        return _core.EAGER
    value = run_eagerly()
    if tag.error is not None:  # the trace raised and the program did not: a bug of ours, but the value is right
        compiled.remove(program)
        internal_failure(site, tag.error)
    return value


def over_limit(site: CallSite) -> Any:
    limit = site.settings.recompile_limit
    if site.settings.fullgraph:
        raise Unsupported("SB021", "recompile limit reached", f"{site.name} was compiled {limit} times",
                          "raise recompile_limit, or make what changes between calls dynamic", None, None, ())
    if not site.limit_told:
        site.limit_told = True
        events.emit(events.CacheLimit(site.name, limit))
        warnings.warn(f"stator: {site.name} was compiled {limit} times and none of the entries fits this call; "
                      "it runs eagerly from now on where no entry fits (recompile_limit)", RuntimeWarning, stacklevel=4)
    events.emit(events.EagerFallback(site.name, f"recompile_limit {limit}"))
    return _core.EAGER


def capture(site: CallSite, bound: tuple[Any, ...]) -> tuple[Any, Any, Installed] | None:
    """One trace through every stage; None when it failed by a bug of ours."""
    code = site.fn.__code__
    events.emit(events.CaptureStarted(site.name, code.co_filename, code.co_firstlineno))
    started = time.perf_counter()
    done = None
    try:
        done = trace(lambda vm: site.begin(vm, bound))
        if site.keep_traces:
            site.traces.append(done)
        if done.stop is not None:
            return stopped(site, done, done.stop, bound)
        if done.error is not None:  # the program raises: CPython raises best, under the guards that led there
            return install_eager(done, bound, f"the program raises {type(done.error).__name__}", done.error)
        try:
            return finish(site, done, bound, started)
        except Break as stop:
            return stopped(site, done, stop, bound)
    except Unsupported:
        raise
    except BackendError:
        if not site.data_dependent or not done.vm.recorder.symbols.has_fresh:
            raise
        site.data_dependent = False  # the backend may have failed on them: break at each instead
        return capture(site, bound)
    except Exception as error:
        return internal_failure(site, error)
    finally:
        if done is not None and not site.keep_traces:
            done.release()


def finish(site: CallSite, done: Trace, bound: tuple[Any, ...], started: float, values: list[Any] | None = None,
           resume: Any = None) -> tuple[Any, Any, Installed]:
    """Emit, compile, lower and check a trace that returned, or that stopped with live `values`."""
    residual = emit_residual(done.vm, done.value if resume is None else values, resume)
    compiled = None
    nodes = 0
    if residual.graph is not None:
        nodes = len(residual.graph.graph.nodes)
        fakes = [graph_input.fake for graph_input in residual.graph_inputs]
        compiled = compile_graph(residual.graph, fakes, site.settings, done.fake_mode, done.grad_at_start)
        done.vm.torch_state.restore()  # a backend that traced the graph has run its changes of settings
    function = residual.link(compiled)
    program, lowered, guards = checked_program(done, residual.wanted, bound)
    seconds = time.perf_counter() - started
    events.emit(events.CaptureFinished(site.name, nodes, len(guards), seconds, residual.graph, residual.source))
    residual.graph_inputs = []  # the tensors of the captured call are the user's to let go
    return program, function, Installed(lowered, guards, residual)


def checked_program(done: Trace, wanted: list[Any], bound: tuple[Any, ...]) -> tuple[Any, Program, list[Guard]]:
    """The guard program; it must accept the very call it came from."""
    guard_set = done.vm.heap.guards
    symbols = done.vm.recorder.symbols
    if symbols.origins:
        guard_set.update(shape_guards(symbols, symbols.shape_env.guards.lines))
    guard_set.prune()
    guards = list(guard_set)
    lowered = lower(guards, wanted)
    program = _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, len(bound))
    failed = program.check(bound)
    if failed != -1:
        raise InternalError(f"the guards reject the call they came from: {lowered.guards[failed].text()}")
    return program, lowered, guards


def install_eager(done: Trace, bound: tuple[Any, ...], why: str,
                  error: BaseException | None = None) -> tuple[Any, Any, Installed]:
    program, lowered, guards = checked_program(done, [], bound)
    return program, _core.EAGER, Installed(lowered, guards, None, why, error)


def stopped(site: CallSite, done: Trace, stop: Break, bound: tuple[Any, ...]) -> tuple[Any, Any, Installed]:
    """A graph break: an error under fullgraph, else this call runs eagerly under the guards met so far."""
    if site.settings.fullgraph:
        raise stop.as_unsupported() from None
    events.emit(events.GraphBreak.of(stop))
    step = plan_stop(done.vm, done.frame)
    if step is not None:
        try:
            again = trace(lambda vm: site.begin(vm, bound), step, stop)
            if again.stop is stop and again.frame is not None and again.vm.steps == step:
                try:
                    return finish_break(site, again, stop, bound, time.perf_counter())
                finally:
                    again.release()
        except Break as other:
            stop = other
    events.emit(events.EagerFallback(site.name, str(stop)))
    return install_eager(done, bound, str(stop))


def finish_break(site: CallSite, done: Trace, stop: Break, bound: tuple[Any, ...],
                 started: float) -> tuple[Any, Any, Installed]:
    """Emit the segment before a break: it ends by resuming after the one instruction that runs natively."""
    vm = done.vm
    vm.frame = done.frame
    states, values = suspend(vm)
    handled = vm.exc_state.value
    if handled is not None:
        values.append(handled)
    resume = Advance(site, states, handled is not None, stop)
    return finish(site, done, bound, started, values, resume)


class Advance:
    """Run the instruction of a break natively, then go on: called by the trampoline with the live values."""

    def __init__(self, site: CallSite, states: list[FrameState], handled: bool, stop: Break) -> None:
        self.site, self.states, self.handled = site, states, handled
        last = states[-1]
        instr = decode(last.code).instructions[last.index]
        self.step = None if stop.code in ("SB008", "SB019") else plan_step(instr, last.kwnames, last.namespace)
        self.line = instr.line
        if self.step is None:
            self.whole = self._point(states, (), False)
            return
        kept = len(last.kinds) - self.step.pops
        self.operand_kinds = last.kinds[kept:]
        if "exc_info" in self.operand_kinds:
            self.step, self.whole = None, self._point(states, (), False)
            return
        self.operands = sum(kind == "value" for kind in self.operand_kinds)
        self.tail = (last.cont == "initialise") + handled  # values after the innermost stack
        self.exits = []
        for way in self.step.exits:
            state = replace(last, index=way.index, kinds=last.kinds[:kept], kwnames=())
            self.exits.append(self._point([*states[:-1], state], tuple(k.value for k in way.pushes), False))
        state = replace(last, index=last.index + 1, kinds=last.kinds[:kept], kwnames=())
        self.failure = self._point([*states[:-1], state], (), True)

    def _point(self, states: list[FrameState], pushes: tuple[str, ...], raising: bool) -> ResumePoint:
        key = (tuple(state.key() for state in states), pushes, self.handled, raising)
        point = self.site.points.get(key)
        if point is None:
            line = decode(states[-1].code).instructions[states[-1].index].line
            point = ResumePoint(states, pushes, self.handled, raising, f"{self.site.name} resumed at line {line}")
            point.compiled = make_point_entry(self.site, point)
            self.site.points[key] = point
        return point

    def __call__(self, *values: Any) -> Any:
        if self.step is None:
            return self.whole.run_native(values)
        end = len(values) - self.tail
        given = iter(values[end - self.operands:end])
        operands = [NULL if kind == "null" else next(given) for kind in self.operand_kinds]
        head, made, last = values[:end - self.operands], values[end:len(values) - self.handled], \
            values[len(values) - self.handled:]
        try:
            way, results = handling(last[0] if last else None, self.step.run, operands)
        except BaseException as error:
            error.__traceback__ = own_frames_dropped(error.__traceback__)
            return _core.Resume(self.failure.compiled, (*head, *made, *last, error))
        return _core.Resume(self.exits[way].compiled, (*head, *made, *results, *last))


def make_point_entry(site: CallSite, point: ResumePoint) -> Any:
    """The entry object of a resume point; run natively, it runs the rest of the call as CPython would."""
    parameters = ", ".join(point.names)
    source = f"def resumed({parameters}):\n    return run_native(({parameters}{',' if point.names else ''}))\n"
    namespace: dict[str, Any] = {"run_native": point.run_native}
    exec(compile(source, f"<stator {point.name}>", "exec"), namespace)  # noqa: S102  our own text
    function = namespace["resumed"]
    resumed = CallSite(function, site.settings, point.name, point=point, points=site.points)

    def miss(compiled: Any, bound: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        return on_miss(resumed, compiled, bound, args, kwargs)

    resumed.compiled = _core.CompiledFunction(function, miss, ())
    resumed.compiled._stator_site = resumed
    _entries.add(resumed.compiled)
    return resumed.compiled


def internal_failure(site: CallSite, error: BaseException) -> None:
    site.failures += 1
    events.emit(events.InternalFailure(site.name, error))
    if site.settings.strict:
        raise InternalError(f"capturing {site.name} failed: {type(error).__name__}: {error}") from error
    if site.failures == 1:
        warnings.warn(f"stator: capturing {site.name} failed by a bug of Stator's ({type(error).__name__}: {error}); "
                      "the call runs eagerly. STATOR_STRICT=1 raises it.", RuntimeWarning, stacklevel=5)
    return None


def report_recompile(site: CallSite, compiled: Any, bound: tuple[Any, ...]) -> None:
    """Say which guard of the nearest entry failed, with the old and the new value."""
    if not events.listening():
        return
    failures = compiled.last_failures()
    for (_, _, tag), failed in zip(compiled.entries(), failures, strict=False):
        if tag is None or failed is None or failed < 0:
            continue
        guard = tag.program.guards[failed]
        why = explain_guard(guard, bound)
        where = guard.where or (None, None, None)
        events.emit(events.Recompile(site.name, str(why) if why else guard.text(), guard.text(),
                                     getattr(why, "expected", ""), getattr(why, "found", ""), where[0], where[1]))
        return


# ---------------------------------------------------------------------- explain


@dataclass
class Explanation:
    """What compiling one call did."""

    graphs: list[Any]
    guards: list[Guard]
    residuals: list[str]
    break_reasons: list[Any]
    value: Any = None

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.break_reasons)


@dataclass(frozen=True)
class BreakReason:
    """One graph break, in the shape torch._dynamo.explain gives it."""

    reason: str
    code: str
    user_stack: tuple[Any, ...]

    def __str__(self) -> str:
        return self.reason


def explain(fn: Any, settings: Settings, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    compiled = make_entry(fn, settings)
    with events.record() as log:
        value = compiled(*args, **kwargs)
    result = Explanation([], [], [], [], value)
    for event in log:
        if isinstance(event, events.CaptureFinished) and event.graph is not None:
            result.graphs.append(event.graph)
        elif isinstance(event, events.GraphBreak):
            stack = tuple(types.SimpleNamespace(filename=f.filename, lineno=f.line, name=f.function) for f in event.stack)
            result.break_reasons.append(BreakReason(f"{event.code} {event.title}: {event.cause}", event.code, stack))
    for _, _, tag in compiled.entries():
        result.guards.extend(tag.guards)
        if tag.residual is not None:
            result.residuals.append(tag.residual.source)
    return result
