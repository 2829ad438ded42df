"""Entries whose first call loads the tracer.   compile(f)  ->  an entry;   the first miss  ->  load, then capture

In: a Python function and its settings.  Out: an entry object that costs nothing until it is called.  A first call that
an entry of another process accepts uses it, and loads no tracer.  `on_miss` of `capture/miss.py` takes over at the
first call that finds no entry.
"""

from __future__ import annotations

import atexit
import functools
import gc
import itertools
import os
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch

from stator import _core, events
from stator.host.garbage_collection import collector_paused
from stator.host.held_signals import held_signals
from stator.host.lazy_imports import load, loaded
from stator.host.own_code import OWN_FOLDER
from stator.host.suspended_patches import find_patches, replaced_operator
from stator.settings import marks, stance
from stator.settings.options import Settings
from stator.settings.process_config import config

if TYPE_CHECKING:
    from stator.artifacts.site_reader import StoredSites
    from stator.cache.sharing import Shareable
    from stator.capture.call_site import CallSite
    from stator.guards.guard import Guard
    from stator.guards.lower import Program

TRACER = "stator.capture.miss"
_MODES, _REPLACED = "stator.graph.state.suspended_modes", "stator.host.replaced_builtins"
_LOOKUP, _DISPATCH = "stator.artifacts.store_lookup", "stator.cache.dispatch"
lock = threading.RLock()  # of captures, and of the load before the first
_waiting: list[Callable[[], object]] = []
_early: weakref.WeakSet[_core.CompiledFunction] = weakref.WeakSet()  # entries that were taken without the tracer


@dataclass
class Installed:
    """The parts of one entry; the C++ side keeps them as its tag."""

    program: Program
    guards: Sequence[Guard]
    residual: Any  # emit.Residual, or None where the entry runs the program as it is
    why_eager: str = ""
    shareable: Shareable | None = None  # its compiled graph, which may serve other entries
    under_locks: bool = False  # its function takes locks, and runs a guard program of its own
    receiver: type | None = None  # of the first argument that it was made for
    number: int = field(default_factory=itertools.count().__next__)  # later entries have larger ones


def tracer() -> types.ModuleType:
    """The module `stator.capture.miss`, with all that captures."""
    module = load(TRACER)
    while _waiting:
        _waiting.pop(0)()
    while _early:
        opened(_early.pop())
    return module


def with_tracer(action: Callable[[], object]) -> None:
    """Do something as soon as the tracer is loaded."""
    action() if TRACER in loaded else _waiting.append(action)


class LaterSite:
    """Stands for the site of a function that was not called yet; makes it where more than these fields is read."""

    is_later: ClassVar[bool] = True
    stored: StoredSites | None = None  # entries of files that were given before the first call

    def __init__(self, compiled: _core.CompiledFunction, function: types.FunctionType, settings: Settings) -> None:
        self.compiled, self.fn, self.settings = compiled, function, settings
        self.name = site_name(function, settings, compiled)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(opened(self.compiled), name)


def site_name(function: object, settings: Settings, compiled: _core.CompiledFunction) -> str:
    """The name of a site in events: that of `forward` where a module is compiled."""
    if not settings.name and function is torch.nn.Module.__call__ and compiled.prefix_args:
        return f"{type.__dict__['__name__'].__get__(type(compiled.prefix_args[0]))}.forward"
    return str(settings.name or getattr(function, "__qualname__", "?"))


def opened(compiled: _core.CompiledFunction) -> CallSite:
    """The site of an entry object, made if it was not called yet."""
    with lock:
        if type(later := compiled._stator_site) is LaterSite:
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                _reset_at_exit()
            module = tracer()
            if compiled._stator_site is later:  # loading the tracer opens those that were taken early
                site = module.open_site(later.fn, later.settings, compiled)
                compiled.miss.__setstate__((module.on_miss, (site,), {}, None))
        found: CallSite = compiled._stator_site
    return found


@functools.cache
def _reset_at_exit() -> None:
    """Let go of process groups, which guards hold, while their threads can still be joined."""
    atexit.register(lambda: (tracer().reset(), gc.collect()))


def make_entry(fn: Callable[..., object], settings: Settings) -> _core.CompiledFunction:
    """The compiled form of a Python function or bound method."""
    prefix, function = ((fn.__self__,), fn.__func__) if isinstance(fn, types.MethodType) else ((), fn)
    # No function of ours in between: its frame would hold an exception among the arguments that leaves by it.
    compiled = _core.CompiledFunction(function, functools.partial(_first_miss), prefix)
    compiled._stator_site = LaterSite(compiled, cast(types.FunctionType, function), settings)
    if TRACER in loaded:
        opened(compiled)
    return compiled


def _first_miss(compiled: _core.CompiledFunction, bound: tuple[object, ...], *call: object) -> object:
    if type(later := compiled._stator_site) is LaterSite and _taken_early(later, bound):
        return _core.RETRY
    opened(compiled)
    return compiled.miss(compiled, bound, *call)


def _taken_early(later: LaterSite, bound: tuple[object, ...]) -> bool:
    """Install an entry of another process where nothing is in force that only `on_miss` knows to handle."""
    settings = later.settings
    if later.stored is None and not (config.artifact_dir or os.environ.get("STATOR_CACHE_DIR")) or TRACER in loaded \
            or marks.disable_depth() or config.disable or marks.disabled_mark(later.fn) is not None or settings.shapes \
            or settings.shapes_spec is not None \
            or stance.current() != "default" or stance.forced_backend() is not None or find_patches() \
            or replaced_operator(True) is not None \
            or torch._C._get_tracing_state() is not None or load(_REPLACED).replaced() is not None \
            or torch.distributed.is_available() and torch.distributed.is_initialized():
        return False
    return take_stored(later, bound) or take_from_others(later, bound)


def take_stored(site: CallSite | LaterSite, bound: tuple[object, ...],
                attach: Callable[[], bool] | None = None) -> bool:
    """Install an entry that another process has made, if one fits: nothing is traced or compiled for that."""
    with lock, held_signals(), collector_paused(), load(_MODES).set_aside():
        if attach is not None and not attach():
            return False
        if site.stored is None:
            load(_LOOKUP).look_up(site, bound)
        stored, compiled = site.stored, site.compiled
        if stored is None or stance.current() == "eager_then_compile" \
                or type(site) is LaterSite and stored.has_breaks():  # the tracer has what goes on behind a break
            return False
        found = stored.take(bound)
        if found is not None:
            receiver = type(bound[0]) if bound else None
            tag = Installed(found.program, found.guards, found.residual, found.why_eager, receiver=receiver)
            compiled.add_entry(found.check, found.run, tag)
            load(_DISPATCH).update_dispatch(compiled)
            if type(site) is LaterSite:  # once the tracer is there, a reset or a stance must find the entry
                _early.add(compiled)
    return found is not None


def take_from_others(site: CallSite | LaterSite, bound: tuple[object, ...]) -> bool:
    """Wait for a process that captures the same function, if there is one, and install its entry."""
    if not (config.artifact_dir or os.environ.get("STATOR_CACHE_DIR")):
        return False
    return bool(load(_LOOKUP).take_from_others(site, functools.partial(take_stored, site, bound)))


def has_entries() -> bool:
    """Whether some function may have an entry."""
    return TRACER in loaded or bool(_early)


def report_eager_call(compiled: object, reason: str) -> None:
    """Emit the event of a call that runs eagerly on request: a stance, a disabled region, a debugger."""
    site = getattr(compiled, "_stator_site", None)
    if site is not None and events.listening():
        code = site.fn.__code__
        events.emit(events.EagerFallback(site.name, reason, code.co_filename, code.co_firstlineno))


def release_lock_after_fork() -> None:
    """A child process has only the thread that forked: a lock that another one held is never let go."""
    global lock
    lock = threading.RLock()


_core.set_own_folder(OWN_FOLDER)
_core.listen_to_eager(report_eager_call)
os.register_at_fork(after_in_child=release_lock_after_fork)
stance.on_forced_backend(lambda backend: tracer().force_backend(backend))
