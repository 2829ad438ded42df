"""The garbage collector waits until a capture is over.   with collector_paused(): capture

A capture makes many objects and next to no garbage: collections look at them again and again, and a full one costs more
than the capture of a small model.  Finalizers of the user, which a collection may run, would run under the modes of the
trace.  While a backend compiles, the collector runs.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_paused = False


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Turn the collector off, where the program has it on."""
    global _paused
    if not gc.isenabled():
        yield
        return
    before, _paused = _paused, True
    gc.disable()
    try:
        yield
    finally:
        _paused = before
        gc.enable()


@contextlib.contextmanager
def collector_running() -> Iterator[None]:
    """Inside collector_paused(): turn it on again."""
    if not _paused or gc.isenabled():
        yield
        return
    gc.enable()
    try:
        yield
    finally:
        gc.disable()
