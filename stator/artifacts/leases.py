"""One process captures, the others wait for its file.   take(path) -> Lease;  wait_for(path, ...) -> why the wait ended

In: the path of a lease in a store.  Out: a lease that one process holds while it captures.  The kernel
takes it back when the process ends, in whatever way: it is a lock on an open file, with no clock and no expiry.  Where
the file system has no locks, or the file belongs to another user, there is no lease and nobody waits.

A wait ends when the file of the key changes, when the owner has released the lease, when the owner is stopped or has
used no CPU time for a while, and after `artifact_wait_seconds` in any case.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

SUFFIX = ".lease"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_SHORTEST_POLL, _LONGEST_POLL = 0.005, 0.1  # seconds
_NAME_BYTES = 128  # process and host of the owner; who waits adds a byte
SILENT_SECONDS = 60.0  # without CPU time of the owner: it waits for something that may never come
_held: dict[str, Lease] = {}  # by path: those of this process, for which it never waits


class Ended(enum.Enum):
    """Why a wait has ended."""

    CHANGED = "the other process has stored a capture"
    RELEASED = "the other process has stored nothing"
    TAKEN_OVER = "the other process has ended"
    SILENT = "the other process makes no progress"
    TIME = "artifact_wait_seconds have passed"


class Lease:
    """A lock on a file of the store; `release` removes the file."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor
        _held[str(path)] = self
        name = f"{os.getpid()} {socket.gethostname()}"
        with contextlib.suppress(OSError):  # a full disk: who waits does not learn the name of the owner
            os.pwrite(descriptor, name[:_NAME_BYTES - 1].ljust(_NAME_BYTES - 1).encode("ascii", "replace") + b"\n", 0)

    def is_wanted(self) -> bool:
        """Whether another process has begun to wait."""
        return self._descriptor >= 0 and os.fstat(self._descriptor).st_size > _NAME_BYTES

    def release(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                if _is_at(self._descriptor, self.path):
                    os.unlink(self.path)
            self.forget()

    def forget(self) -> None:
        """Close the file alone: in a forked process the lock stays with its parent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            _held.pop(str(self.path), None)


def is_held(path: Path) -> bool:
    """Whether this process holds the lease."""
    return str(path) in _held


def take(path: Path) -> Lease | int | None:
    """The lease; the open file where another process holds it; None where there are no leases."""
    for _ in range(100):
        try:
            descriptor = os.open(path, _FLAGS, 0o600)
        except OSError:
            return None
        found = _locked(descriptor)
        if found is None or not _is_own(descriptor):
            os.close(descriptor)
            return None
        if not found:
            return descriptor
        if _is_at(descriptor, path):
            return Lease(path, descriptor)
        os.close(descriptor)  # it was released between the two calls
    return None


def wait_for(path: Path, descriptor: int, seconds: float,
             has_changed: Callable[[], bool]) -> tuple[Ended, Lease | None]:
    """Wait for the owner of a lease, and close the descriptor: why the wait has ended; the lease if it was taken."""
    with contextlib.suppress(OSError):
        os.pwrite(descriptor, b"w", _NAME_BYTES)
    try:
        pause, begun = _SHORTEST_POLL, time.monotonic()
        progress, since = _progress(descriptor), begun
        while True:
            if has_changed():
                return Ended.CHANGED, None
            found = _locked(descriptor)
            if found and _is_at(descriptor, path):  # nobody has removed it: the owner was killed
                return Ended.TAKEN_OVER, Lease(path, os.dup(descriptor))
            if found is not False:
                return (Ended.CHANGED if has_changed() else Ended.RELEASED), None
            now = time.monotonic()
            if (latest := _progress(descriptor)) != progress:
                progress, since = latest, now
            if latest == _STOPPED or now - since > SILENT_SECONDS:
                return Ended.SILENT, None
            if now - begun > seconds:
                return Ended.TIME, None
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL)
    finally:
        os.close(descriptor)


_STOPPED = "stopped"


def _progress(descriptor: int) -> str:
    """CPU time of the owner, where it can be read; a process of another host has the time of its file alone."""
    try:
        pid, host = os.pread(descriptor, _NAME_BYTES, 0).decode("ascii").split()
        if host == socket.gethostname():
            with open(f"/proc/{int(pid)}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            return _STOPPED if fields[0] in "Tt" else " ".join(fields[11:15])
    except (OSError, ValueError, IndexError):
        pass
    return str(time.monotonic() // 1)  # not known: only the time limit ends the wait


def _locked(descriptor: int) -> bool | None:
    """Whether this process has the lock now; None where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_own(descriptor: int) -> bool:
    found = os.fstat(descriptor)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether a path still names the open file."""
    try:
        there, here = os.lstat(path), os.fstat(descriptor)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _forget_all() -> None:
    for lease in list(_held.values()):
        lease.forget()


os.register_at_fork(after_in_child=_forget_all)
