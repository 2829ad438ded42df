"""Calls of a function that starts eagerly.   options={"start": "eager"}  ->  why this call is not captured now"""

from __future__ import annotations

from typing import Any

import torch

from stator import errors, events
from stator.capture import first_call
from stator.capture.call_site import CallSite


def runs_eagerly(site: CallSite, bound: tuple[Any, ...]) -> str:
    """Why a call of a function that starts eagerly is not captured now; empty where it is."""
    if not first_call.lock.acquire(blocking=False):
        return "another thread captures"
    try:
        start = site.start
        start.calls += 1
        if start.job is None or start.job.lost:  # rests of calls and functions below breaks come after a first call
            first = start.calls == 1 and site.point is None and not site.is_nested
            return "options['start'] is 'eager', and this is the first call" if first else ""
        return "another process compiles it" if not start.job.finished() else announced(site, bound)
    finally:
        first_call.lock.release()


def announced(site: CallSite, bound: tuple[Any, ...]) -> str:
    """Another process has ended: why calls stay eager, or nothing."""
    start = site.start
    if not start.told:
        start.told = True
        events.emit(events.CompiledElsewhere(site.name, start.job.seconds, start.job.failure))
        if start.job.failure:
            errors.warn(f"stator: the process that compiled {site.name} failed: {start.job.failure}; its calls stay "
                          "eager")
        elif site.settings.dynamic is not False:  # sizes that have changed meanwhile are symbolic
            with torch._C.DisableTorchFunction():
                site.shapes.memory.learn(start.guards, bound)
    return f"the process that compiled it failed: {start.job.failure}" if start.job.failure else ""
