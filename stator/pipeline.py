"""From a call that no entry accepts to an installed entry.   trace -> check -> emit -> backend -> install -> run

In: a Python function and its settings.  Out: a C++ entry object that holds guarded entries and asks here on a miss.
"""

from __future__ import annotations

import os
import threading
import time
import types
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode

from stator import _core, events, marks, stance
from stator.backends import check_settings
from stator.backends.aot import failed_in_autograd
from stator.backends.compilation import compile_graph
from stator.backends.generations import begins_generation, records_cuda_graphs
from stator.backends.registry import prepare_backend
from stator.breaks import Break
from stator.cache.dispatch import update_dispatch
from stator.cache.family import entry_of_another, join_family
from stator.cache.forced_backends import use_backend
from stator.cache.nested import NestedFrames
from stator.cache.probe import BreakProbe
from stator.cache.recompiles import gives_up, may_compile, over_limit, report_recompile
from stator.cache.sharing import description_of, find_shared, shareable
from stator.cache.site import CallSite, Installed
from stator.emit.advance import Advance, Points
from stator.emit.inheritance import pass_on
from stator.emit.locks import UnderLocks, bound_arguments
from stator.emit.points import NATIVE_CODES, ResumePoint
from stator.emit.residual import Residual, emit_residual
from stator.emit.static_addresses import mark_static_addresses
from stator.errors import BackendError, DeclarationError, InternalError, Unsupported
from stator.graph import propagation
from stator.graph.histories import AS_IT_IS, needs_old_values, separate_histories
from stator.graph.may_fail import fails_where_it_is_caught
from stator.graph.memory import memory_partition, overlap_in_symbols, sharing_candidates, storage_partition
from stator.graph.modes_aside import put_back, set_aside, unasked
from stator.guards.guard import Guard, Kind
from stator.guards.guard_set import GuardList, in_order
from stator.guards.lower import Program, lower
from stator.heap.wrappers import leaf_sources
from stator.held_signals import held_signals, signals_let_through
from stator.interp import function_modes
from stator.interp.rules_effects import PolicySet
from stator.interp.rules_gradients import WAY
from stator.interp.rules_higher_order import CARRIED_NUMBERS, carries_numbers
from stator.interp.rules_settings import INFERENCE
from stator.interp.rules_torch import BACKWARD
from stator.interp.suspend import plan_stop, suspend
from stator.interp.trace import Trace, trace
from stator.options import Settings
from stator.replaced_builtins import replaced, replaces
from stator.shapes import profile
from stator.shapes.checks import require_declared, shape_guards
from stator.shapes.values import in_the_users_terms
from stator.source import CallOf, Pinned

_core.set_own_folder(__file__.rpartition("/")[0])
_lock = threading.RLock()
_tracing = threading.local()
_entries: weakref.WeakSet[Any] = weakref.WeakSet()


def make_entry(fn: Any, settings: Settings) -> Any:
    """The compiled form of a Python function or bound method."""
    prefix: tuple[Any, ...] = ()
    function: Any = fn
    if isinstance(fn, types.MethodType):
        prefix, function = (fn.__self__,), fn.__func__
    name: str = getattr(function, "__qualname__", "?")
    site = CallSite(function, settings, settings.name or name)
    site.nested = NestedFrames(lambda func: make_nested_entry(site, func), NATIVE_CODES)
    invoke = site.nested.invoke if settings.compile_nested else call_natively
    site.points = Points(site.name, lambda point: make_point_entry(site, point), invoke)

    def miss(compiled: Any, bound: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        return on_miss(site, compiled, bound, args, kwargs)

    site.compiled = _core.CompiledFunction(function, miss, prefix)
    site.compiled._stator_site = site
    register(site)
    if not records_cuda_graphs(settings):  # which are recorded for the addresses of one module
        join_family(site.compiled, function)
    return site.compiled


def register(site: CallSite) -> None:
    _entries.add(site.compiled)
    if stance.forced_backend() is not None:
        use_backend(site, stance.forced_backend())


def force_backend(backend: Any) -> None:
    """A stance forces this backend from now on; None: each function has its own again."""
    if backend is not None:
        check_settings(Settings(backend=backend))
    for compiled in list(_entries):
        use_backend(compiled._stator_site, backend)


stance.on_forced_backend(force_backend)


def make_nested_entry(site: CallSite, func: types.FunctionType) -> Any:
    """The entry of a function that was entered below a break of `site`: a call of its own, that may break."""
    entry = make_entry(func, replace(site.own_settings, fullgraph=False, name=None, shapes={}))
    entry._stator_site.is_nested = True
    return entry


def call_natively(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def reset() -> None:
    """Forget every compiled entry of every compiled function, and what was learned of operations."""
    propagation.forget()
    profile.forget()
    for compiled in list(_entries):
        compiled.clear()
        site = compiled._stator_site
        site.put_aside.clear()
        site.limit_told = site.eager_told = site.gave_up = False
        site.eager_calls = 0
        site.shapes.memory.forget()
        site.shapes.memory.foreseen = None


def shape_profile() -> str:
    """What every place has learned about changing sizes, as JSON."""
    sites = [compiled._stator_site for compiled in list(_entries)]
    return profile.export((site.place, site.shapes.memory) for site in sites)


def load_shape_profile(text: str) -> None:
    """Start from what another process has learned: places that exist, and those that are made later."""
    profile.load(text)
    for compiled in list(_entries):
        site = compiled._stator_site
        site.shapes.memory.foreseen = profile.foreseen(site.place)


def on_miss(site: CallSite, compiled: Any, bound: tuple[Any, ...], args: tuple[Any, ...],
            kwargs: dict[str, Any] | None) -> Any:
    """No entry accepted the call: capture it, then make it again."""
    if getattr(_tracing, "active", False) or marks.disable_depth() > 0:
        return _core.EAGER
    if (name := replaced()) is not None:
        events.emit(events.EagerFallback(site.name, f"builtins.{name} was replaced, and Stator needs Python's own"))
        return _core.EAGER
    if torch._C._get_tracing_state() is not None:  # torch.jit.trace: sizes are tensors, and no entry accepts the call
        events.emit(events.EagerFallback(site.name, "torch.jit.trace is running"))
        return _core.EAGER
    mark = marks.disabled_mark(site.fn)
    if mark is not None:  # only the frame itself is left alone, unless the mark is recursive
        return _core.EAGER if mark.recursive else site.points.invoke(site.fn, *args, **(kwargs or {}))
    if site.shapes.declared.dims:
        site.shapes.declared.check_call(site.fn, bound)
    if take_from_family(site, bound):
        return _core.RETRY
    if not may_compile(site, bound):
        return _core.EAGER
    installed = compiled.entries()
    if installed:
        with torch._C.DisableTorchFunction():  # a mode of the user's must not see that tensors are looked at
            report_recompile(site, bound)
            if site.settings.dynamic is not False:
                for _, _, tag in installed:
                    if tag is not None:
                        site.shapes.memory.learn(tag.guards, bound)
    if len(installed) >= site.settings.recompile_limit and not gives_up(site, bound, installed):
        over_limit(site, bound)
        return _core.EAGER
    with _lock:
        again, _tracing.retried = getattr(_tracing, "retried", None) == id(compiled), None
        # Beside other threads, one of `installed` may be newer than the miss; asked once, so that nobody asks for ever.
        if fits_by_now(compiled, installed if again or threading.active_count() == 1 else [], bound):
            _tracing.retried = id(compiled)
            return _core.RETRY
        _tracing.active = True
        try:
            with held_signals(), set_aside():
                entry = capture(site, bound)
        except BaseException:
            if site.point is not None:  # the regions that earlier segments have entered are never left
                site.points.leave_policy()
            raise
        finally:
            _tracing.active = False
        if entry is None:
            return _core.EAGER
        program, residual, tag = entry
        error, tag.error = tag.error, None  # an exception holds the program's frames: an entry must not hold it
        compiled.add_entry(program, residual, tag)  # before the next thread that waits looks for it
        update_dispatch(compiled)
    if residual is not _core.EAGER:
        return _core.RETRY
    if error is None or not site.settings.strict:
        return _core.EAGER
    try:
        value = site.fn(*args, **(kwargs or {}))  # args include the receiver of a bound method
        compiled.remove(program)  # the trace raised and the program did not: a bug of ours, but the value is right
        internal_failure(site, error)
        return value
    finally:
        del error, entry, bound, args


def take_from_family(site: CallSite, bound: tuple[Any, ...]) -> bool:
    """Install an entry that another place of this function has, if one fits: nothing is compiled for that."""
    if stance.current() == "eager_then_compile" or len(site.compiled.entries()) >= site.settings.recompile_limit:
        return False
    with _lock:
        found = entry_of_another(site, bound)
        if found is not None:
            site.compiled.add_entry(*found)
            update_dispatch(site.compiled)
    return found is not None


def fits_by_now(compiled: Any, seen: list[Any], bound: tuple[Any, ...]) -> bool:
    """Whether another thread has installed an entry for this call while this one waited for the lock."""
    known = {id(program) for program, _, _ in seen}
    return any(program.check(bound) == -1 for program, _, _ in compiled.entries() if id(program) not in known)


def release_lock_after_fork() -> None:
    """A child process has only the thread that forked: a lock that another one held is never let go."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=release_lock_after_fork)


ATTEMPTS_BESIDE_THREADS = 3


class WorldChanged(Exception):
    """What the trace relied on holds no longer when it is done: the call runs eagerly, and the next one is captured."""


def capture(site: CallSite, bound: tuple[Any, ...],
            rejected: tuple[str, ...] = ()) -> tuple[Any, Any, Installed] | None:
    """One trace through every stage; None when it failed by a bug of ours.

    `rejected`: the guards that refused earlier attempts beside other threads. A fact that a thread changes has another
    value in each attempt, or holds in the next; a guard that refuses every time is a bug, whoever is running.
    """
    code = site.fn.__code__
    events.emit(events.CaptureStarted(site.name, code.co_filename, code.co_firstlineno))
    started = time.perf_counter()
    done = None
    try:
        prepare_backend(site.settings)
        done = trace(lambda vm: site.begin(vm, bound))
        if site.keep_traces:
            site.traces.append(done)
        if done.stop is not None:
            return stopped(site, done, done.stop, bound)
        if done.error is not None:  # the program raises: CPython raises best, under the guards that led there
            # Unless an operation before fails, which only the graph would know, and the program goes on from there.
            surely = None if fails_where_it_is_caught(done.vm.recorder.graph) else done.error
            return install_eager(done, bound, f"the program raises {type(done.error).__name__}", surely)
        try:
            return finish(site, done, bound, started)
        except Break as stop:
            stop.__traceback__ = None  # its frames hold objects of the program
            return stopped(site, done, stop, bound)
    except (Unsupported, DeclarationError):
        raise
    except WorldChanged as changed:
        rejected = (*rejected, str(changed))
        if len(rejected) < ATTEMPTS_BESIDE_THREADS:
            return capture(site, bound, rejected)
        if len(set(rejected)) == 1:
            internal_failure(site, InternalError(f"the guards reject the call they came from: {changed}"))
        else:
            events.emit(events.EagerFallback(site.name, f"another thread keeps changing a fact: {changed}"))
        return None
    except BackendError as error:
        if done is None or not ask_less(site, done) and not leave_as_it_is(site, error):
            raise
        return capture(site, bound)
    except RecursionError:
        if done is None:
            return None  # what the program is made of is nested too deep to be looked at: it runs as it is
        why = str(Break("SB011", "values nested deeper than the recursion limit"))
        events.emit(events.EagerFallback(site.name, why))
        return install_eager(done, bound, why)
    except Exception as error:
        internal_failure(site, error)
        return None
    finally:
        if done is not None and not site.keep_traces:
            done.release()


def is_sparse(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout is torch.sparse_coo


def ask_less(site: CallSite, done: Trace) -> bool:
    """A backend failed, perhaps on numbers that only the graph knows: whether the graph can do without them."""
    recorder = done.vm.recorder
    if site.shapes.floats and any(graph_input.boxed for graph_input in recorder.inputs):
        site.shapes.floats = False  # floats from outside become constants again
        return True
    if not site.shapes.items and recorder.items.declined:
        site.shapes.items = True  # numbers in inputs are read before the graph runs
        return True
    if WAY not in site.turned_off and recorder.graph.find_nodes(op="call_function", target=torch.autograd.grad):
        site.turned_off.add(WAY)  # break there
        return True
    if INFERENCE not in site.turned_off and recorder.graph.find_nodes(op="call_function", target=_enter_inference_mode):
        site.turned_off.add(INFERENCE)  # break where it is entered and left
        return True
    if CARRIED_NUMBERS not in site.turned_off and carries_numbers(recorder.graph):
        site.turned_off.add(CARRIED_NUMBERS)  # break at the loop
        return True
    if recorder.takes_sparse and any(is_sparse(graph_input.tensor) for graph_input in recorder.inputs):
        site.turned_off.add("sparse inputs")  # break at what uses them
        return True
    if site.data_dependent and recorder.symbols.has_fresh:
        site.data_dependent = False  # break at each instead
        return True
    return False


def leave_as_it_is(site: CallSite, error: BackendError) -> bool:
    """Whether AOTAutograd cannot trace the graph at all, as it can be run: then that is done, and said."""
    if AS_IT_IS in site.turned_off or not site.settings.has_own_backend or not failed_in_autograd(error):
        return False
    site.turned_off.add(AS_IT_IS)
    why = f"AOTAutograd cannot trace a graph of {site.name}, which is run as it is ({error.__cause__})".splitlines()[0]
    events.emit(events.EagerFallback(site.name, why))
    warnings.warn(f"stator: {why}", RuntimeWarning, stacklevel=6)
    return True


def finish(site: CallSite, done: Trace, bound: tuple[Any, ...], started: float, values: list[Any] | None = None,
           resume: Any = None) -> tuple[Any, Any, Installed]:
    """Emit, compile, lower and check a trace that returned, or that stopped with live `values`."""
    if done.vm.error_policy != marks.error_policy():  # a region was entered or left, and goes on after this segment
        setter = site.points.enter_policy if site.point is None else marks.set_error_policy
        done.vm.effects.append(PolicySet(done.vm.error_policy, setter))
    begin = begins_generation(site.settings) if site.point is None and not site.is_nested else None
    residual = emit_residual(done.vm, done.value if resume is None else values, resume, begin)
    guard_shared_memory(done, residual)
    compiled, serves = None, None
    nodes = 0
    if residual.graph is not None:
        nodes = len(residual.graph.graph.nodes)
        mark_static_addresses(done.vm.heap, residual.graph_inputs, bound)
        compiled, serves = compiled_or_shared(site, done, residual, bound)
    function = residual.link(compiled, site.settings.backend_name)
    if done.vm.modes_at_start:
        function = unasked(function)
    if done.vm.locks:
        program, lowered, guards, function = under_locks(done, residual, function, bound)
    else:
        program, lowered, guards = checked_program(done, residual.wanted, bound, residual.packed)
    seconds = time.perf_counter() - started
    events.emit(events.CaptureFinished(site.name, nodes, len(lowered.checks), seconds, residual.graph, residual.source,
                                       guards))
    residual.graph_inputs = []  # the tensors of the captured call are the user's to let go
    return program, function, Installed(lowered, guards, residual, shareable=serves,
                                        under_locks=bool(done.vm.locks),
                                        receiver=type(bound[0]) if bound else None)


def compiled_or_shared(site: CallSite, done: Trace, residual: Residual, bound: tuple[Any, ...]) -> tuple[Any, Any]:
    """The compiled graph: another entry's, where that is the same but for sizes; and how it can serve others."""
    entries = site.compiled.entries()
    graph: Any = residual.graph
    description = None
    if done.vm.recorder.symbols.origins or any(tag is not None and tag.shareable for _, _, tag in entries):
        description = description_of(done, residual)
    found = None if done.vm.modes_at_start else find_shared(entries, done, description, residual, bound)
    if found is not None:
        done.vm.heap.guards.update(found[1])
        return found[0], None
    fakes = done.vm.recorder.wrappers.inside([each.example for each in residual.graph_inputs])
    for graph_input in residual.graph_inputs:
        if graph_input.boxed:  # compilers take the number a fake remembers for a constant of theirs
            graph_input.fake.item_memo = None
    settings = site.settings
    if done.vm.recorder.as_it_is or not settings.runs_in_order and (
            done.stop is not None and done.stop.detail == BACKWARD and separate_histories(graph.graph)
            or done.vm.recorder.writes_in_place and settings.has_own_backend
            and (needs_old_values(graph.graph) or overlap_in_symbols(residual.graph_inputs))):
        settings = replace(settings, backend="eager", mode=None, options={})
        events.emit(events.EagerFallback(site.name, "a graph that a compiler would not do as the program does is run "
                                         "as it is"))
    with signals_let_through(), torch._C._EnableTorchFunction():  # a backend may trace the graph with proxies
        compiled = compile_graph(graph, fakes, settings, done.fake_mode, done.grad_at_start)
    done.vm.torch_state.restore()  # a backend that traced the graph has run its changes of settings
    return compiled, shareable(done, compiled, description)


def under_locks(done: Trace, residual: Residual, function: Any,
                bound: tuple[Any, ...]) -> tuple[Any, Program, Sequence[Guard], Any]:
    """The guards, and a residual that takes the program's locks before it relies on them."""
    states = list(done.vm.locks.values())
    wanted = [*bound_arguments(len(bound)), *(state.source for state in states)]
    program, lowered, guards = checked_program(done, wanted, bound)
    return program, lowered, guards, UnderLocks(guards, residual, function, len(bound), states)


def guard_shared_memory(done: Trace, residual: Residual) -> None:
    """A graph that writes in place is right for inputs that share memory as these do."""
    if not done.vm.recorder.writes_in_place:
        return
    candidates = [leaf for each in sharing_candidates(residual.graph_inputs)
                  for leaf in leaf_sources(each.tensor, each.source)]
    if len(candidates) > 1:
        tensors = [tensor for tensor, _ in candidates]
        shared = storage_partition(*tensors)
        if done.vm.recorder.wrappers.behind and len(set(shared)) < len(shared):
            raise Break("SB017", "a wrapper subclass and a tensor on one memory, which the graph writes to")
        ask = storage_partition if done.vm.recorder.in_order else memory_partition
        place = CallOf(Pinned(ask), tuple(source for _, source in candidates))
        done.vm.heap.guard(place, Kind.FRESH_CALL, ask(*tensors))


def checked_program(done: Trace, wanted: list[Any], bound: tuple[Any, ...],
                    packed: int = 0) -> tuple[Any, Program, Sequence[Guard]]:
    """The guard program; it must accept the very call it came from."""
    guard_set = done.vm.heap.guards
    symbols = done.vm.recorder.symbols
    if symbols.declared:
        require_declared(symbols, symbols.shape_env.guards.lines)
    if symbols.origins:
        guard_set.update(shape_guards(symbols, symbols.shape_env.guards.lines))
    guard_set.prune()
    guards = GuardList(guard_set)
    lowered = lower(in_order(guard_set.single()), wanted, guard_set.said())
    program = _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, len(bound), packed)
    with put_back():
        failed = program.check(bound)
    # A module that loads its parts when they are asked for (numpy.ma) has a name now that it lacked before the trace.
    if failed != -1 and (done.vm.has_company or threading.active_count() > 1
                         or lowered.guards[failed].kind is Kind.ABSENT):
        raise WorldChanged(lowered.guards[failed].text())
    if failed != -1:
        raise InternalError(f"the guards reject the call they came from: {lowered.guards[failed].text()}")
    return program, lowered, guards


def install_eager(done: Trace, bound: tuple[Any, ...], why: str,
                  error: BaseException | None = None) -> tuple[Any, Any, Installed]:
    program, lowered, guards = checked_program(done, [], bound)
    return program, _core.EAGER, Installed(lowered, guards, None, why, error)


def stopped(site: CallSite, done: Trace, stop: Break, bound: tuple[Any, ...]) -> tuple[Any, Any, Installed] | None:
    """A graph break: an error under fullgraph, else this call runs eagerly under the guards met so far."""
    if stop.data.get("once"):  # what this call does, later ones do not do again: they are captured
        events.emit(events.EagerFallback(site.name, stop.cause))
        return None
    hopeless = stop.data.get("turn_off") == function_modes.WAY and site.breaks_are_errors(done.vm)
    if not hopeless and must_repeat(site, stop):
        return capture(site, bound)
    in_the_users_terms(stop, done.vm.recorder.symbols)
    if site.breaks_are_errors(done.vm):
        raise stop.as_unsupported() from None
    event = events.GraphBreak.of(stop)
    events.emit(event)
    needed = any(replaces(scope.namespace, scope.overlay) for scope in done.vm.heap.scopes.values())
    step = None if stop.data.get("whole_call") or needed else plan_stop(
        done.vm, done.frame, str(stop.data.get("leave", "")), bool(stop.data.get("outermost")))
    if step is not None:
        try:
            again = trace(lambda vm: site.begin(vm, bound), step, stop)
            try:
                if again.stop is stop and again.frame is not None and again.vm.steps == step:
                    return finish_break(site, again, stop, event, bound, time.perf_counter())
            finally:
                again.release()
        except Break as other:
            if must_repeat(site, other):
                return capture(site, bound)
            other.__traceback__ = None
            stop = other
    events.emit(events.EagerFallback(site.name, str(stop)))
    return install_eager(done, bound, str(stop))


def must_repeat(site: CallSite, stop: Break) -> bool:
    """Whether a way of capturing turned out to be wrong here: it has to break instead.

    A captured branch that left a tensor as it was, now seen under two names; or what the stop calls `turn_off`.
    """
    way = stop.data.get("turn_off")
    if way is not None and way not in site.turned_off:
        site.turned_off.add(str(way))
        return True
    if not stop.data.get("uncertain") or site.branches_break:
        return False
    site.branches_break = True
    return True


def finish_break(site: CallSite, done: Trace, stop: Break, event: events.GraphBreak, bound: tuple[Any, ...],
                 started: float) -> tuple[Any, Any, Installed]:
    """Emit the segment before a break: it ends by resuming after the one instruction that runs natively."""
    vm = done.vm
    vm.frame = done.frame
    states, values = suspend(vm, stop.code == "SB019")
    handled = vm.exc_state.value
    if handled is not None:
        values.append(handled)
    resume = Advance(site.points, states, handled is not None, stop, event)
    if site.settings.dynamic is not False:
        pass_on(site.shapes.memory, vm.heap, values, resume, stop)
    return finish(site, done, bound, started, values, resume)


def make_point_entry(site: CallSite, point: ResumePoint) -> Any:
    """The entry object of a resume point; run natively, it runs the rest of the call as CPython would."""
    parameters = ", ".join(point.names)
    # This frame would hold an exception that leaves it, and be held by it: only run_native has the values from then on.
    drop = f"    del {parameters}\n" if point.names else ""
    source = f"def resumed({parameters}):\n    taken = [{parameters}]\n{drop}    return run_native(taken)\n"
    namespace: dict[str, Any] = {"run_native": point.run_native}
    filename = f"<stator {point.name}>".replace("\0", "?")  # a code object may be called anything
    exec(compile(source, filename, "exec"), namespace)  # noqa: S102  our own text
    function = namespace["resumed"]
    resumed = CallSite(function, site.own_settings, point.name, point=point, points=site.points, nested=site.nested,
                       data_dependent=site.data_dependent)
    resumed.shapes.floats, resumed.shapes.items = site.shapes.floats, site.shapes.items

    def miss(compiled: Any, bound: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        return on_miss(resumed, compiled, bound, args, kwargs)

    resumed.compiled = _core.CompiledFunction(function, miss, ())
    resumed.compiled.taker = point.run_native
    resumed.compiled._stator_site = resumed
    register(resumed)
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


def explained_call(fn: Any, settings: Settings, args: tuple[Any, ...],
                   kwargs: dict[str, Any]) -> tuple[Any, list[events.Event], list[Installed], BreakProbe]:
    """Capture one call: its value, its events, what every entry was made from, and what its breaks cost."""
    compiled = make_entry(fn, replace(settings, isolate_recompiles=True))
    points = compiled._stator_site.points
    points.probe = probe = BreakProbe()
    with events.record() as log:
        value = compiled(*args, **kwargs)
    points.probe = None
    entries = [compiled, *points.entries()]
    return value, log, [tag for entry in entries for _, _, tag in entry.entries()], probe
