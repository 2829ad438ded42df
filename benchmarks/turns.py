"""Measurements of several processes, one at a time.   with turn(path): ...   waits until no other process measures

In: a file that all of them name; none: there is nobody to wait for.  The kernel takes the lock back from an owner that
ends.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator


@contextlib.contextmanager
def turn(path: str) -> Iterator[None]:
    if not path:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
