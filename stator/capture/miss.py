"""From a call that no entry accepts to an installed entry.   miss -> capture -> install -> run

In: a Python function and its settings.  Out: a C++ entry object, which calls this module on a miss.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
import time
import types
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from stator import _core, events
from stator.artifacts.store_lookup import open_lookup
from stator.artifacts.store_writes import end_capture, note_capture
from stator.backends import aot, compiled_graphs, cuda_graphs, eager, inductor  # noqa: F401  (all with the tracer)
from stator.backends.background import jobs
from stator.backends.cuda_graphs import records_cuda_graphs
from stator.backends.registry import check_settings
from stator.cache.dispatch import update_dispatch
from stator.cache.nested import NestedFrames
from stator.capture import code_memory, first_call
from stator.capture.call_site import CallSite, EagerStart, Learned
from stator.capture.call_site_family import entry_of_another, join_family, use_backend
from stator.capture.eager_start import runs_eagerly
from stator.capture.first_call import Installed, make_entry, report_eager_call, site_name, take_stored
from stator.capture.rank_agreement import agree, results_compared
from stator.capture.recompiles import forbid_recompile, gives_up, may_compile, over_limit, report_recompile
from stator.capture.stages import capture, decline
from stator.emit.resume.advance import Points
from stator.emit.resume.resume_points import NATIVE_CODES, ResumePoint
from stator.graph.metadata import propagation
from stator.graph.state.quiet_logging import loggers_unchanged
from stator.graph.state.suspended_modes import set_aside
from stator.host.garbage_collection import collector_paused, living
from stator.host.held_signals import held_signals
from stator.host.replaced_builtins import replaced
from stator.host.suspended_patches import find_patches, needs_eager, replaced_operator, restored, suspended
from stator.settings import marks, stance
from stator.settings.options import Settings
from stator.settings.process_config import config
from stator.shapes import profile

_tracing = threading.local()
around_capture: Callable[[CallSite], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext  # of torch's logs
RUN_AS_CAPTURED = ("eager", "eager_noexcept")  # backends without a compiler of torch's
_entries: weakref.WeakSet[Any] = weakref.WeakSet()


def open_site(function: types.FunctionType, settings: Settings, compiled: _core.CompiledFunction) -> CallSite:
    later = compiled._stator_site
    site = CallSite(function, settings, site_name(function, settings, compiled))
    site.nested = NestedFrames(lambda func: make_nested_entry(site, func), NATIVE_CODES)
    invoke = site.nested.invoke if settings.compile_nested else operator.call
    site.points = Points(site.name, lambda point: make_point_entry(site, point), invoke)
    site.compiled, compiled._stator_site = compiled, site
    register(site)
    if later.stored is not None:  # files that were read before the tracer was loaded
        later.stored.open(site)
    open_lookup(site)
    if not records_cuda_graphs(settings):  # which are recorded for the addresses of one module
        join_family(compiled, function)
    return site


def register(site: CallSite) -> None:
    _entries.add(site.compiled)
    if stance.forced_backend() is not None:
        use_backend(site, stance.forced_backend())


def force_backend(backend: Any) -> None:
    """A stance forces this backend from now on; None: each function has its own again."""
    if backend is not None:
        check_settings(Settings(backend=backend))
    for compiled in living(_entries):
        use_backend(compiled._stator_site, backend)


def make_nested_entry(site: CallSite, func: types.FunctionType) -> Any:
    """The entry of a function that was entered below a break of `site`: a call of its own, that may break."""
    entry = make_entry(func, replace(site.stance.own_settings, fullgraph=False, name=None, shapes={}))
    entry._stator_site.is_nested = True
    return entry


def reset() -> None:
    """Forget every compiled entry of every compiled function, and what was learned of operations."""
    propagation.forget()
    profile.forget()
    compiled_graphs.forget()
    code_memory.forget()
    jobs.forget()
    for compiled in living(_entries):
        compiled.clear()
        site = compiled._stator_site
        site.stance.put_aside.clear()
        site.eager.limit_told = site.eager.told = site.eager.gave_up = False
        site.eager.calls = 0
        site.start = EagerStart()
        site.shapes.memory.forget()
        site.shapes.memory.foreseen = None


def shape_profile() -> str:
    return profile.export((each._stator_site.place, each._stator_site.shapes.memory) for each in living(_entries))


def load_shape_profile(text: str) -> None:
    """Import the sizes that another process has met, for places that exist and for later ones."""
    profile.load(text)
    for site in [each._stator_site for each in living(_entries)]:
        site.shapes.memory.foreseen = profile.foreseen(site.place)


def on_miss(site: CallSite, compiled: object, bound: tuple[Any, ...], args: tuple[Any, ...],
            kwargs: dict[str, Any] | None) -> Any:
    """No entry accepted the call: capture it, and make it again; where no frames are left for a capture, eagerly."""
    try:
        return captured_miss(site, compiled, bound, args, kwargs)
    except RecursionError:  # of Stator alone, unless the function was run below: a trace raises none
        if site.settings.fullgraph or marks.disabled_mark(site.fn) is not None:
            raise
    finally:
        end_capture(site)
    with contextlib.suppress(RecursionError):
        report_eager_call(compiled, "the recursion limit leaves no room for a capture")
    return _core.EAGER


def captured_miss(site: CallSite, compiled: object, bound: tuple[Any, ...], args: tuple[Any, ...],
                  kwargs: dict[str, Any] | None) -> Any:
    """Capture the call; the patches of the program are for the program."""
    why = "it is disabled" if marks.disable_depth() > 0 else "a capture is running" if getattr(
        _tracing, "active", False) else "config.disable is set" if config.disable else ""
    if why:
        report_eager_call(compiled, why)
        return _core.EAGER
    if (name := replaced()) is not None:
        why = f"builtins.{name} was replaced, and Stator needs Python's own"
    elif (name := replaced_operator(site.settings.backend not in RUN_AS_CAPTURED)) is not None:
        why = f"torch.ops.aten.{name} was replaced, and compilers of torch need torch's own"
    elif (patches := find_patches()) and (name := needs_eager(patches)) is not None:
        why = f"Tensor.{name} was replaced, and other threads are running"
    if why:
        decline(site, why)
        return _core.EAGER
    with suspended(patches):
        return handle_miss(site, compiled, bound, args, kwargs)


def handle_miss(site: CallSite, compiled: Any, bound: tuple[Any, ...], args: tuple[Any, ...],
                kwargs: dict[str, Any] | None) -> Any:
    if torch._C._get_tracing_state() is not None:  # torch.jit.trace: sizes are tensors, and no entry accepts the call
        decline(site, "torch.jit.trace is running")
        return _core.EAGER
    mark = marks.disabled_mark(site.fn)
    if mark is not None:  # only the frame itself is left alone, unless the mark is recursive
        report_eager_call(compiled, "it is marked with stator.disable")
        with restored():
            return _core.EAGER if mark.recursive else site.points.invoke(site.fn, *args, **(kwargs or {}))
    if site.shapes.declared.checks:
        site.shapes.declared.check_call(site.fn, bound)
    if take_from_family(site, bound) or take_stored(site, bound):
        return _core.RETRY
    if not may_compile(site, bound):
        return _core.EAGER
    if site.settings.starts_eagerly and (why := runs_eagerly(site, bound)):
        events.emit(events.EagerFallback(site.name, why))
        return _core.EAGER
    installed = compiled.entries()
    if installed:
        with torch._C.DisableTorchFunction():  # a mode of the user must not see these reads of tensors
            report_recompile(site, bound)
            if site.settings.dynamic is not False:
                for _, _, tag in installed:
                    if tag is not None:
                        site.shapes.memory.learn(tag.guards, bound)
        if config.error_on_recompile:
            forbid_recompile(site, bound)
    agree(site, bound)
    with torch._C.DisableTorchFunction():
        code_memory.recall(site, bound)
    is_full = len(installed) >= site.settings.recompile_limit and not gives_up(site, bound, installed)
    if is_full or compiled_here(site, bound) >= config.accumulated_recompile_limit:
        over_limit(site, bound, accumulated=not is_full)
        return _core.EAGER
    if first_call.take_from_others(site, bound):
        return _core.RETRY
    with first_call.lock:
        again, _tracing.retried = getattr(_tracing, "retried", None) == id(compiled), None
        # Beside other threads, one of `installed` may be newer than the miss; tried once, so that no call loops.
        if fits_by_now(compiled, installed if again or threading.active_count() == 1 else [], bound):
            _tracing.retried = id(compiled)
            return _core.RETRY
        started = time.perf_counter()
        try:
            with results_compared(site, bool(installed)):
                entry = traced(site, bound)
        except BaseException:
            if site.point is not None:  # the regions that earlier segments have entered are never left
                site.points.leave_policy()
            raise
        if entry is None:
            if site.start.job is not None:
                events.emit(events.EagerFallback(site.name, "another process compiles it"))
            return _core.EAGER
        if site.start.job is not None:
            events.emit(events.SwappedIn(site.name, site.start.calls, time.perf_counter() - started))
            site.start = EagerStart(site.start.calls)
        program, residual, tag = entry
        code_memory.remember(site, bound, tag.guards)
        compiled.add_entry(program, residual, tag)  # before the next thread that waits looks for it
        update_dispatch(compiled)
        note_capture(site, time.perf_counter() - started)
    return _core.RETRY


def traced(site: CallSite, bound: tuple[Any, ...]) -> tuple[Any, Any, Installed] | None:
    """Capture one call, and install nothing."""
    _tracing.active = True
    try:
        with around_capture(site), held_signals(), collector_paused(), loggers_unchanged(), set_aside():
            return capture(site, bound)
    finally:
        _tracing.active = False


def compiled_here(site: CallSite, bound: tuple[Any, ...]) -> int:
    """How many entries were made for this place of the program, in all compile() calls, for objects of this class."""
    receiver = type(bound[0]) if bound else None
    return len({id(tag) for tag in entries_of_place(site) if tag is None or tag.receiver in (receiver, None)})


def entries_of_place(site: CallSite) -> list[Installed | None]:
    """The entries of all compile() calls for this place of the program; one that several share is there for each."""
    return [tag for each in living(_entries) if each._stator_site.place_key == site.place_key
            for _, _, tag in each.entries()]


def take_from_family(site: CallSite, bound: tuple[Any, ...]) -> bool:
    """Install an entry that another place of this function has, if one fits: nothing is compiled for that."""
    if stance.current() == "eager_then_compile" or len(site.compiled.entries()) >= site.settings.recompile_limit:
        return False
    with first_call.lock, restored():
        found = entry_of_another(site, bound)
        if found is not None:
            site.compiled.add_entry(*found)
            update_dispatch(site.compiled)
    return found is not None


def fits_by_now(compiled: Any, seen: list[Any], bound: tuple[Any, ...]) -> bool:
    """Whether another thread has installed an entry for this call while this one waited for the lock."""
    known = {id(program) for program, _, _ in seen}
    with restored():
        return any(program.check(bound) == -1 for program, _, _ in compiled.entries() if id(program) not in known)


def make_point_entry(site: CallSite, point: ResumePoint) -> Any:
    """The entry object of a resume point; run natively, it runs the rest of the call as CPython would."""
    parameters = ", ".join(point.names)
    # This frame would hold an exception that leaves it, and be held by it: only run_native has the values from then on.
    drop = f"    del {parameters}\n" if point.names else ""
    source = f"def resumed({parameters}):\n    taken = [{parameters}]\n{drop}    return run_native(taken)\n"
    namespace: dict[str, Any] = {"run_native": point.run_native}
    exec(compile(source, f"<stator {point.name}>".replace("\0", "?"), "exec"), namespace)  # noqa: S102  our own text
    function = namespace["resumed"]
    resumed = CallSite(function, site.stance.own_settings, point.name, point=point, points=site.points,
                       nested=site.nested, learned=Learned(site.learned.data_dependent))
    resumed.shapes.floats, resumed.shapes.items = site.shapes.floats, site.shapes.items
    resumed.compiled = _core.CompiledFunction(function, functools.partial(on_miss, resumed), ())
    resumed.compiled.taker = point.run_native
    resumed.compiled._stator_site = resumed
    register(resumed)
    return resumed.compiled


def explained_call(fn: Callable[..., Any], settings: Settings, args: tuple[Any, ...], kwargs: dict[str, Any],
                   probe: object) -> tuple[Any, list[events.Event], list[Installed]]:
    """Capture one call: its value, its events, and what every entry was made from; `probe` watches its breaks."""
    compiled = make_entry(fn, replace(settings, isolate_recompiles=True, start="now"))
    points = compiled._stator_site.points
    points.probe = probe
    with events.record() as log:
        value = compiled(*args, **kwargs)
    points.probe = None
    return value, log, [tag for entry in (compiled, *points.entries()) for _, _, tag in entry.entries()]
