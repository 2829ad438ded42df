"""Calls that a compiled segment hands back to the program.   its graph raised, a lock was taken  ->  EAGER

The entry then runs the program as it is and tells how that went: where it succeeds though the graph has failed, the
graph was wrong, and one warning says so.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

from stator import _core

_being_redone = threading.local()  # causes: of the calls that this thread is making again, outermost first
_told: set[str] = set()


def run_as_it_is(failure: str | None = None) -> Any:
    """What a segment returns that has done nothing; `failure`: what to say where the program itself does not fail."""
    _being_redone.__dict__.setdefault("causes", []).append(failure)
    return _core.EAGER


def forgive() -> Any:
    """The program may do without what its graph could not: nothing is to be said of the last run_as_it_is."""
    _being_redone.causes[-1] = None
    return _core.EAGER


def graph_was_wrong(succeeded: bool) -> None:
    """The entry's answer to every run_as_it_is."""
    cause = _being_redone.causes.pop()
    if succeeded and cause is not None and cause not in _told:
        _told.add(cause)
        warnings.warn(cause, RuntimeWarning, stacklevel=2)


_core.listen_to_redone(graph_was_wrong)
