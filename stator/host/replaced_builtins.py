"""Builtins that somebody has replaced.   builtins.len = counted  ->  Stator's own code must not run on it

In: nothing, or the names that a program is about to write.  Out: whether Python's own functions, which every module of
Stator and of torch calls by their plain names, are no longer those that were there when Stator was imported.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any

from stator._core import newest_version

# What programs do replace, and what no capture calls.
_FREE = frozenset({"print", "open", "input", "help", "exit", "quit", "breakpoint", "copyright", "credits", "license",
                   "display", "__import__", "__debug__", "__doc__", "__loader__", "__name__",
                   "__package__", "__spec__", "_"})
_ORIGINALS: list[tuple[str, Any]] = [(name, value) for name, value in vars(builtins).items() if name not in _FREE]
_NAMES = frozenset(name for name, _ in _ORIGINALS)
_current = vars(builtins)
_unreplaced_at = 0  # the version of the namespace when all of them were Python's own


def replaced() -> str | None:
    """The name of a builtin that is another function now; None where all are Python's own."""
    global _unreplaced_at
    version = newest_version([_current])
    if version and version == _unreplaced_at:
        return None
    for name, value in _ORIGINALS:
        if _current.get(name) is not value:
            return name
    _unreplaced_at = version
    return None


def replaces(namespace: dict[str, Any], names: Iterable[str]) -> bool:
    """Whether writing these names to a namespace takes a builtin away from Stator."""
    return namespace is _current and not _NAMES.isdisjoint(names)
