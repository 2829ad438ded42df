"""Progress of a long capture.   a trace that runs for seconds  ->  CaptureProgress events

In: a look at every few hundred iterations and calls of a trace.  Out: an event for listeners and terminals
(`stator.config.capture_progress_seconds`), and the limit of iterations (`stator.config.capture_iteration_limit`).
"""

from __future__ import annotations

import time

from stator import _hook, events
from stator.breaks import Break
from stator.interp.services import VM
from stator.settings.process_config import config

LOOK_MASK = 255  # one iteration or call in 256 reads the clock


class Progress:
    """Clock and limits of one trace."""

    __slots__ = ("limit", "every", "started", "due", "jumps", "pushes", "stop", "recursion_limit")

    def __init__(self) -> None:
        self.limit: int = config.capture_iteration_limit
        self.every: int = config.capture_progress_seconds
        self.started = time.monotonic()
        self.due = self.started + self.every
        self.jumps = self.pushes = 0  # backward jumps and calls so far
        self.stop: Break = None  # type: ignore[assignment]  # what to raise at `vm.stop_step`
        self.recursion_limit = 0  # the user's, while the trace runs under its own

    def look(self, vm: VM) -> None:
        """Emit an event if one is due."""
        now = time.monotonic()
        if now >= self.due:
            self.due = now + self.every
            _hook.quietly(lambda: self.emit(vm, now - self.started))

    def emit(self, vm: VM, seconds: float) -> None:
        stack = vm.stack()
        events.emit_progress(events.CaptureProgress(
            stack[0].function, seconds, self.jumps, len(vm.recorder.graph.nodes), stack[-1].filename, stack[-1].line))
