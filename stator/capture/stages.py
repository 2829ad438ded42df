"""One trace through every stage: a call becomes an entry.   trace -> check -> emit -> backend -> guards

In: a place of a program and the arguments of a call.  Out: a guard program, what runs when it holds, and what both came
from; None when the capture failed by a bug of ours. Who asks for it, and what is done with it: `stator.capture.miss`.
"""

from __future__ import annotations

import threading
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from stator import _core, errors, events
from stator.backends.background.jobs import Deferred
from stator.backends.compiled_graphs import compile_once
from stator.backends.cuda_graphs import begins_generation
from stator.backends.graph_wrappers import past_patches, runtime_names
from stator.backends.registry import find_backend, prepare_backend
from stator.breaks import Break, Strategy
from stator.cache.sharing import description_of, find_shared, shareable
from stator.capture.call_site import CallSite, EagerStart
from stator.capture.first_call import Installed
from stator.capture.next_attempt import (
    capture_without,
    guard_values,
    hide_compiling,
    relax_capture,
    run_uncompiled,
)
from stator.capture.trace import Trace, trace
from stator.emit.residual.eager_calls import EagerEntry, ExpectedError
from stator.emit.residual.failing_calls import written_inputs
from stator.emit.residual.graph_inputs import mark_static_addresses
from stator.emit.residual.residual import Residual, UnderLocks, bound_arguments, emit_residual
from stator.emit.resume.advance import Advance, pass_on
from stator.errors import BackendError, DeclarationError, InternalError, OptionError, Unsupported
from stator.graph.analysis import autograd_boundaries, shared_memory
from stator.graph.analysis.may_fail import all_inputs, fails_where_it_is_caught, memory_written_by
from stator.graph.analysis.mutation import changes_views, storage_of
from stator.graph.state.suspended_modes import put_back, unasked
from stator.guards.guard import MISSING, Guard, Kind
from stator.guards.guard_filter import kept_guards
from stator.guards.guard_semantics import Unreadable, evaluate
from stator.guards.guard_set import GuardList, in_order
from stator.guards.lower import Program, lower
from stator.guards.partition import Address, SharedPlace, partition
from stator.heap.adopt.instances import written_leaves
from stator.heap.shared_state import guard_two_names
from stator.host import shown_names
from stator.host.garbage_collection import collector_running
from stator.host.held_signals import signals_let_through
from stator.host.replaced_builtins import replaces
from stator.host.suspended_patches import NOW, restored
from stator.interp.calls.function_mode_stack import is_changed
from stator.interp.noted_effects import PolicySet
from stator.interp.suspend import plan_stop, suspend
from stator.interp.tensors.tensor_bookkeeping import ASSIGNED
from stator.interp.torch_function_protocol import guard_names, guard_slots
from stator.library.torch.compiler_functions import BACKWARD
from stator.ranks.buckets import mark_buckets
from stator.ranks.divergence import watched
from stator.settings import marks
from stator.settings.options import Settings
from stator.settings.process_config import config
from stator.shapes.symbol_guards import require_declared, shape_guards
from stator.shapes.symbolic_values import in_the_users_terms

ATTEMPTS = 3
_NEVER_WHOLE = (Strategy.FUNCTION_MODES, Strategy.CODE_FROM_TEXT)  # without them the call breaks in another place


class WorldChanged(Exception):
    """A fact that the trace relied on no longer holds when the capture is done."""

    def __init__(self, guard: Guard, bound: tuple[Any, ...]) -> None:
        super().__init__(guard.text())
        try:
            self.value: Any = evaluate(guard.source, bound)
        except Unreadable:
            self.value = MISSING


def capture(site: CallSite, bound: tuple[Any, ...],
            rejected: tuple[WorldChanged, ...] = ()) -> tuple[Any, Any, Installed] | None:
    """One trace through every stage; None when it failed by a bug of ours; `rejected`: guards of earlier attempts."""
    code = site.fn.__code__
    events.emit(events.CaptureStarted(site.name, *site.user_line(bound)))
    started = time.perf_counter()
    done = None
    try:
        prepare_backend(site.settings)
        done = trace(lambda vm: site.begin(vm, bound))
        if done.stop is not None:
            return stopped(site, done, done.stop, bound)
        if done.error is not None:  # the program raises: CPython raises best, under the guards that led there
            if hide_compiling(site, done):
                return capture(site, bound)
            return install_raising(site, done, bound, done.error)
        try:
            return finish(site, done, bound, started)
        except Break as stop:
            late = stop
        late.__traceback__ = None  # its frames hold objects of the program
        return stopped(site, done, late, bound)
    except (Unsupported, DeclarationError, OptionError):
        raise
    except InternalError as error:
        if error.__cause__ is None:
            internal_failure(site, error)
            return None
        raise  # of a capture inside this one
    except WorldChanged as changed:
        rejected = (*rejected, changed)
        if len(rejected) >= ATTEMPTS:
            if len(set(map(str, rejected))) == 1 or all(each.value is changed.value for each in rejected):
                internal_failure(site, InternalError(f"the guards reject the call they came from: {changed}"))
            else:
                report_change(site, changed)
            return None
    except Deferred:
        return None
    except BackendError as error:
        if done is None or not relax_capture(site, done) and not run_uncompiled(site, error):
            if not config.suppress_errors or site.settings.fullgraph:
                raise
            suppress_error(site, error)
            return None
        rejected = ()
    except RecursionError:
        deep = Break("SB011", "values nested deeper than the recursion limit")
        if site.settings.fullgraph:
            raise deep.as_unsupported() from None
        if done is None:  # the trace itself could not look at them
            events.emit(events.EagerFallback(site.name, str(deep), code.co_filename, code.co_firstlineno))
            return None
        return install_eager(site, done, bound, deep)
    except Exception as error:
        internal_failure(site, error)
        return None
    finally:
        if done is not None:
            done.release()
    # Behind the handlers: what the next trace raises natively would get their exception as its context.
    return capture(site, bound, rejected)


def finish(site: CallSite, done: Trace, bound: tuple[Any, ...], started: float, values: list[Any] | None = None,
           resume: object = None) -> tuple[Any, Any, Installed]:
    """Emit, compile, lower and check a trace that returned, or that stopped with live `values`."""
    # A region was entered or left, and goes on after this segment.
    if done.vm.policy.error_policy != marks.error_policy():
        setter = site.points.enter_policy if site.point is None else marks.set_error_policy
        done.vm.effects.noted.append(PolicySet(done.vm.policy.error_policy, setter))
    begin = begins_generation(site.settings) if site.point is None and not site.is_nested else None
    residual = emit_residual(done.vm, done.value if resume is None else values, resume, begin)
    guard_shared_memory(done, residual)
    compiled, serves = None, None
    nodes = 0
    if residual.graph is not None:
        nodes = len(residual.graph.graph.nodes)
        mark_static_addresses(done.vm.heap, residual.graph_inputs, bound)
        if not find_backend(site.settings.backend).takes_settings:
            guard_names(done.vm, residual.graph.graph)
        compiled, serves = compiled_or_shared(site, done, residual, bound)
        if not site.settings.runs_in_order and site.settings.has_own_backend:
            done.vm.recorder.slots_used |= runtime_names()
            compiled = past_patches(compiled) if NOW.patches else compiled
        compiled = watched(compiled, residual.graph.graph, done.vm.heap.guards)
    function = residual.link(compiled, site.settings.backend_name)
    if done.vm.modes.at_start or is_changed(done.vm):
        function = unasked(function)
    if done.vm.locks.used:
        program, lowered, guards, function = under_locks(done, residual, function, bound)
    else:
        program, lowered, guards = checked_program(done, residual.wanted, bound, residual.packed)
    seconds = time.perf_counter() - started
    terms = shown_names.names.arguments(site.fn, site.point, bound) if events.listening() else ()
    cost = measured(program, bound) if events.listening() else 0.0
    probe = site.points.probe
    by_kind = () if probe is None else probe.guard_costs(guards, lambda some: measured_alone(some, bound))
    events.emit(events.CaptureFinished(site.name, nodes, len(lowered.checks), seconds, residual.graph, residual.source,
                                       guards, terms, cost, by_kind))
    residual.graph_inputs = []  # the tensors of the captured call are the user's to let go
    return program, function, Installed(lowered, guards, residual, shareable=serves,
                                        under_locks=bool(done.vm.locks.used),
                                        receiver=type(bound[0]) if bound else None)


def measured(program: Any, bound: tuple[Any, ...]) -> float:
    """The microseconds of one check of the guards, the least of five rounds: other processes take turns in between."""
    with put_back(), restored():
        return min(timeit.repeat(lambda: program.check(bound), number=4, repeat=5)) / 4 * 1e6


def measured_alone(guards: Sequence[Guard], bound: tuple[Any, ...]) -> float:
    one = lower(in_order(guards))
    return measured(_core.GuardProgram(one.nodes, one.checks, one.wanted, len(bound), 0), bound)


def compiled_or_shared(site: CallSite, done: Trace, residual: Residual, bound: tuple[Any, ...]) -> tuple[Any, Any]:
    """The compiled graph: another entry's, where that is the same but for sizes; and how it can serve others."""
    entries = site.compiled.entries()
    graph: Any = residual.graph
    description = None
    if done.vm.recorder.symbols.origins or any(tag is not None and tag.shareable for _, _, tag in entries):
        description = description_of(done, residual)
    found = None if done.vm.modes.at_start else find_shared(entries, done, description, residual, bound)
    if found is not None:
        done.vm.heap.guards.update(found[1])
        return found[0], None
    fakes = done.vm.recorder.wrappers.inside([each.example for each in residual.graph_inputs])
    for graph_input in residual.graph_inputs:
        if graph_input.boxed:  # compilers take the number a fake remembers for a constant of theirs
            graph_input.fake.item_memo = None
    settings = site.settings
    why = why_as_it_is(done, graph.graph, residual.graph_inputs, settings)
    if why and any("recompute" in node.meta for node in graph.graph.nodes):
        # As it is, the graph would save what a checkpoint does not.
        raise Break("SB016", why, turn_off=Strategy.COMPILER)
    if why:
        settings = replace(settings, backend="eager", mode=None, options={})
        events.emit(events.EagerFallback(site.name, f"a graph that a compiler would not do as the program does is run "
                                         f"as it is: {why}"))
    if done.grad_at_start and config.optimize_ddp and not settings.runs_in_order:
        mark_buckets(graph.graph, [each.tensor for each in residual.graph_inputs])
    # A backend may trace the graph with proxies, and take long.
    with signals_let_through(), collector_running(), torch._C._EnableTorchFunction():
        requester = None if done.vm.modes.at_start else site.requester
        try:
            compiled = compile_once(graph, fakes, settings, done.fake_mode, done.grad_at_start, requester)
        except Deferred as later:
            site.start = EagerStart(site.start.calls, later.job, GuardList(done.vm.heap.guards))
            raise
    done.vm.torch_state.restore()  # a backend that traced the graph has run its changes of settings
    return compiled, shareable(done, compiled, description)


def why_as_it_is(done: Trace, graph: fx.Graph, inputs: list[Any], settings: Settings) -> str:
    """Why no compiler may have a graph; empty where one may."""
    recorder = done.vm.recorder
    if recorder.backend.as_it_is:
        return "an operation that compilers do otherwise"
    if settings.runs_in_order:
        return ""
    if done.stop is not None and done.stop.detail.startswith(BACKWARD) \
            and autograd_boundaries.separate_histories(graph):
        return "results that are differentiated one by one"
    if done.stop is not None and done.stop.detail == ASSIGNED and any(
            map(autograd_boundaries.wants_grad, autograd_boundaries.output_nodes(graph))):
        return "a tensor that autograd may have saved, which gets other memory"
    if recorder.log.in_place and shared_memory.writes_beside_unsafe_views(graph):
        return "a write, and a view whose schema denies that it is one"
    if recorder.backend.overlaps is None or not recorder.log.in_place:
        return ""
    if autograd_boundaries.needs_old_values(graph):
        return "a write to an input whose old value is needed"
    if autograd_boundaries.saves_written_tensors(graph):
        return "a write to a tensor that autograd has saved"
    if shared_memory.overlapping_inputs(inputs, recorder.backend.overlaps.storages):
        return "a write to one of two inputs that overlap"
    repeating = shared_memory.inputs_that_may_repeat(inputs, recorder.backend.overlaps.storages)
    if any(shared_memory.repeats_elements(each.tensor) for each in repeating):
        return "a write to a tensor that overlaps itself"
    if shared_memory.overlap_across_storages(inputs):
        return "a write to memory that inputs share through several storages"
    return str(recorder.backend.overlaps.found)


def under_locks(done: Trace, residual: Residual, function: Callable[..., Any],
                bound: tuple[Any, ...]) -> tuple[Any, Program, Sequence[Guard], Any]:
    """The guards, and a residual that takes the program's locks before it relies on them."""
    states = list(done.vm.locks.used.values())
    wanted = [*bound_arguments(len(bound)), *(state.source for state in states)]
    program, lowered, guards = checked_program(done, wanted, bound)
    return program, lowered, guards, UnderLocks(guards, residual, function, len(bound), states)


def guard_shared_memory(done: Trace, residual: Residual) -> None:
    """A graph that writes in place is right for inputs that share memory as these do."""
    recorder = done.vm.recorder
    if not recorder.log.in_place:
        return
    changed = written_inputs(recorder, recorder.graph, recorder.inputs)[0]
    written = {each.node for each in changed}
    overlaps = recorder.backend.overlaps
    storages = {storage_of(each.fake) for each in changed}.union(() if overlaps is None else overlaps.storages)
    if overlaps is not None:
        for each in shared_memory.inputs_that_may_repeat(residual.graph_inputs, storages):
            answer = shared_memory.repeats_elements(each.tensor)
            done.vm.heap.guard_call(shared_memory.repeats_elements, answer, each.source)
    for each in residual.graph_inputs:
        # The program may handle the error; compilers write when all is computed, and would find out too late.
        if autograd_boundaries.with_history(each.fake) and storage_of(each.fake) in storages \
                and not shared_memory.refuses_writes(each.tensor):
            done.vm.heap.guard_call(shared_memory.refuses_writes, False, each.source)
        # So with operations that refuse views (`detach_`); sizes have users, too.
        if each.tensor is not None and any(map(changes_views, each.node.users)):
            done.vm.heap.guard_call(shared_memory.is_view, shared_memory.is_view(each.tensor), each.source)
    reached = memory_written_by(recorder.graph.nodes) if recorder.wrappers.behind else written
    candidates = [leaf for each in shared_memory.sharing_candidates(
        recorder.inputs, residual.graph_inputs, written, recorder.known.read, recorder.backend.in_order)
        for leaf in written_leaves(each.tensor, each.source, each.node, written | reached)]
    if len(candidates) > 1:
        tensors = [tensor for tensor, _, _ in candidates]
        if recorder.wrappers.behind and shared_memory.shares_written(candidates):
            raise Break("SB017", "a wrapper subclass and a tensor on one memory, which the graph writes to")
        if any(map(shared_memory.mapped_file, tensors)):
            for tensor, source, _ in candidates:
                done.vm.heap.guard_call(shared_memory.mapped_file, shared_memory.mapped_file(tensor), source)
        address = Address.STORAGE if recorder.backend.in_order else Address.MEMORY
        places = [SharedPlace(source, address, is_written) for _, source, is_written in candidates]
        done.vm.heap.guard(places[0].source, Kind.PARTITION, partition(places, tensors))


def checked_program(done: Trace, wanted: list[Any], bound: tuple[Any, ...],
                    packed: int = 0) -> tuple[Any, Program, Sequence[Guard]]:
    """The guard program; it must accept the very call it came from."""
    vm = done.vm
    guard_slots(vm)
    vm.recorder.known.branches.add_guard(vm.heap.guard_call)
    vm.random.ahead.add_guard(vm.heap.guard_call)
    vm.recorder.wrappers.nested.add_guard(vm.heap.guard_call)
    guard_set, symbols = vm.heap.guards, vm.recorder.symbols
    if symbols.declared:
        require_declared(symbols, symbols.shape_env.guards.lines)
    if symbols.origins:
        guard_set.update(shape_guards(symbols, symbols.shape_env.guards.lines, vm.heap.shapes.declared.relations))
    guard_set.prune()
    guards, instances = GuardList(guard_set), guard_set.instances()
    if vm.policy.guard_filter is not None:
        guards, instances = GuardList(None, kept_guards(vm.policy.guard_filter, guards, bound)), []
    lowered = lower(in_order(guards.arrived()), wanted, instances)
    program = _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, len(bound), packed)
    with put_back(), restored():
        failed = program.check(bound)
    if failed != -1:  # as where a module loads its parts when they are first read (numpy.ma)
        raise WorldChanged(lowered.guards[failed], bound)
    return program, lowered, guards


def install_eager(site: CallSite, done: Trace, bound: tuple[Any, ...], stop: Break) -> tuple[Any, Any, Installed]:
    """An entry that runs the function eagerly, under the guards met before `stop`."""
    program, lowered, guards = checked_program(done, [], bound)
    code = site.fn.__code__
    place = (stop.filename, stop.line) if stop.line is not None else (code.co_filename, code.co_firstlineno)
    return program, EagerEntry(site.name, str(stop), *place), Installed(lowered, guards, None, str(stop))


def install_raising(site: CallSite, done: Trace, bound: tuple[Any, ...],
                    error: BaseException) -> tuple[Any, Any, Installed]:
    """An entry that runs the function eagerly and expects `error`, under the guards that led there."""
    expected = ExpectedError.of(error, error.__traceback__)
    why = f"the program raises {expected}"
    vm = done.vm
    for tracker in vm.heap.trackers:  # under another name, what was written may prevent the error
        tracker.mutated = tracker.mutated or id(tracker) in vm.heap.changes.written \
            or id(tracker.standin) in vm.tensors.grads
    try:
        guard_two_names(vm.heap, vm.classes.overlays, vm.recorder.layouts.touched())
    except Break as stop:
        return install_eager(site, done, bound, stop)
    program, lowered, guards = checked_program(done, [], bound)
    # Expect nothing where an operation before may fail, and the program goes on from there.
    graph = vm.recorder.graph
    surely = None if fails_where_it_is_caught(graph, all_inputs(graph)) else expected.after(vm)
    entry = EagerEntry(site.name, why, expected.filename, expected.line, surely)
    return program, entry, Installed(lowered, guards, None, why)


def decline(site: CallSite, why: str) -> None:
    """Emit the event of a call that cannot be captured now; an error under fullgraph."""
    stop = Break("SB025", why)
    code = site.fn.__code__
    stop.filename, stop.line = code.co_filename, code.co_firstlineno
    if site.settings.fullgraph:
        raise stop.as_unsupported() from None
    events.emit(events.EagerFallback(site.name, why, stop.filename, stop.line))


def stopped(site: CallSite, done: Trace, stop: Break, bound: tuple[Any, ...]) -> tuple[Any, Any, Installed] | None:
    """Turn a graph break into an error under fullgraph, else into a segment that resumes behind one instruction."""
    if stop.stop.once:  # what this call does, later ones do not do again: they are captured
        events.emit(events.EagerFallback(site.name, stop.cause, stop.filename, stop.line))
        return None
    hopeless = stop.stop.turn_off in _NEVER_WHOLE and site.breaks_are_errors(done.vm)
    if not hopeless and capture_without(site, stop):
        return capture(site, bound)
    in_the_users_terms(stop, done.vm.recorder.symbols, done.vm.written)
    if site.breaks_are_errors(done.vm):
        if guard_values(site, done, stop):
            return capture(site, bound)
        raise stop.as_unsupported() from None
    event = events.GraphBreak.of(stop)
    events.emit(event)
    needed = any(replaces(scope.namespace, scope.overlay) for scope in done.vm.heap.scopes.values())
    step = None if stop.stop.whole_call or needed else plan_stop(
        done.vm, done.frame, stop.stop.leave, stop.stop.outermost)
    failed: Break | None = None
    if step is not None:
        try:
            if rewind(done, stop, step):
                return finish_break(site, done, stop, event, bound, time.perf_counter())
            again = trace(lambda vm: site.begin(vm, bound), step, stop)
            try:
                if again.stop is stop and again.frame is not None and again.vm.steps == step:
                    return finish_break(site, again, stop, event, bound, time.perf_counter())
            finally:
                again.release()
        except Break as other:
            failed = other
    if failed is not None:
        if capture_without(site, failed):
            return capture(site, bound)
        failed.__traceback__ = None
        if failed.line is None:
            failed.filename, failed.line, failed.stack = stop.filename, stop.line, stop.stack
        stop = failed
    return install_eager(site, done, bound, stop)


def rewind(done: Trace, stop: Break, step: int) -> bool:
    """Put a trace back before the instruction that broke; False where that instruction may have changed something."""
    vm, frame = done.vm, done.frame
    if not stop.stop.restored or done.stop is not stop or frame is None or not frame.step == step == vm.steps - 1:
        return False
    frame.ip -= 1
    vm.steps = step
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


def report_change(site: CallSite, changed: WorldChanged) -> None:
    """Name a fact that does not hold still while a call is captured."""
    who = "the backend, a listener of events, an import"
    if threading.active_count() > 1:
        who += " or another thread"
    why = f"a fact changes in every capture of {site.name}, by {who}: {changed}"
    decline(site, why)
    site.eager.failures += 1
    if site.eager.failures == 1:
        errors.warn(f"stator: {why}; the call runs eagerly")


def suppress_error(site: CallSite, error: BackendError) -> None:
    """Emit why a call runs eagerly that config.suppress_errors keeps from raising."""
    events.emit(events.EagerFallback(site.name, why := str(error).splitlines()[0]))
    if not site.eager.told:
        site.eager.told = True
        errors.warn(f"stator: {why}; config.suppress_errors: the call runs eagerly.")


def internal_failure(site: CallSite, error: BaseException) -> None:
    site.eager.failures += 1
    events.emit(events.InternalFailure(site.name, error))
    if site.settings.strict or site.settings.fullgraph:
        raise InternalError(f"capturing {site.name} failed: {type(error).__name__}: {error}") from error
    if site.eager.failures == 1:
        errors.warn(f"stator: capturing {site.name} failed by a bug in Stator ({type(error).__name__}: {error}); "
                      "the call runs eagerly. STATOR_STRICT=1 raises it.")
    return None
