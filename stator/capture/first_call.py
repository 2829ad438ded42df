"""Entries whose first call loads the tracer.   compile(f)  ->  an entry;   the first miss  ->  load, then capture

In: a Python function and its settings.  Out: an entry object that costs nothing until it is called.  `on_miss` of
`capture/miss.py` takes over at the first call that finds no entry.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
import threading
import types
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from stator import _core, events
from stator.host.lazy_imports import load, loaded
from stator.host.own_code import OWN_FOLDER
from stator.settings import stance
from stator.settings.options import Settings

if TYPE_CHECKING:
    from stator.capture.call_site import CallSite

TRACER = "stator.capture.miss"
lock = threading.RLock()  # of captures, and of the load before the first
_waiting: list[Callable[[], object]] = []


def tracer() -> types.ModuleType:
    """The module `stator.capture.miss`, with all that captures."""
    module = load(TRACER)
    while _waiting:
        _waiting.pop(0)()
    return module


def with_tracer(action: Callable[[], object]) -> None:
    """Do something as soon as the tracer is loaded."""
    action() if TRACER in loaded else _waiting.append(action)


class LaterSite:
    """Stands for the site of a function that was not called yet; makes it for who asks for more than these fields."""

    def __init__(self, compiled: object, function: object, settings: Settings) -> None:
        self._compiled, self.fn, self.settings = compiled, function, settings
        self.name = str(settings.name or getattr(function, "__qualname__", "?"))

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(opened(self._compiled), name)


def opened(compiled: _core.CompiledFunction) -> CallSite:
    """The site of an entry object, made if it was not called yet."""
    with lock:
        if type(later := compiled._stator_site) is LaterSite:
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                _reset_at_exit()
            site = tracer().open_site(later.fn, later.settings, compiled)
            compiled.miss.__setstate__((tracer().on_miss, (site,), {}, None))
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
    compiled._stator_site = LaterSite(compiled, function, settings)
    if TRACER in loaded:
        opened(compiled)
    return compiled


def _first_miss(compiled: _core.CompiledFunction, *call: object) -> object:
    opened(compiled)
    return compiled.miss(compiled, *call)


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
