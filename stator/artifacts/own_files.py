"""Files and folders that no other user can have changed.

In: a path.  Out: its bytes, or a file written in one step; `Refused` where another user could have had a hand in it.
A file is checked after it was opened, through its descriptor: a path can be replaced between two calls.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import stat
from pathlib import Path

from stator.artifacts.refusal import Reason, Refused

_OTHERS_WRITE = stat.S_IWOTH
_GROUP_OR_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # no wait at a named pipe
TEMPORARY = ".tmp-"
_made = itertools.count()


def check_folder(folder: Path, *, any_owner: bool = False) -> None:
    """Refuse a folder that is a symbolic link, belongs to another user, or may be written by everybody."""
    try:
        found = os.lstat(folder)
    except OSError as error:
        raise Refused(Reason.UNREADABLE, f"{folder}: {error.strerror}") from error
    if stat.S_ISLNK(found.st_mode):
        raise Refused(Reason.SYMLINK, str(folder))
    if not stat.S_ISDIR(found.st_mode):
        raise Refused(Reason.NOT_A_FOLDER, str(folder))
    _check_owner(found, folder, any_owner)
    for parent in folder.resolve().parents:  # whoever can rename a folder above can put another one in its place
        above = os.stat(parent)
        if above.st_mode & _OTHERS_WRITE and not above.st_mode & stat.S_ISVTX:
            raise Refused(Reason.WRITABLE_BY_OTHERS, str(parent))


def make_folder(folder: Path) -> None:
    """The folder, for this user alone where it is new, after `check_folder`."""
    try:
        folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        pass  # no folder: check_folder says what it is
    except OSError as error:
        raise Refused(Reason.UNREADABLE, f"{folder}: {error.strerror}") from error
    check_folder(folder)


def read_file(path: Path, limit: int, *, any_owner: bool = False, secret: bool = False) -> bytes | None:
    """The bytes of a file, None where there is none.  `secret`: refuse one that others may read."""
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise Refused(Reason.SYMLINK, str(path)) from error
        raise Refused(Reason.UNREADABLE, f"{path}: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Refused(Reason.NOT_A_FILE, str(path))
        _check_owner(found, path, any_owner)
        if secret and found.st_mode & _GROUP_OR_OTHERS:
            raise Refused(Reason.READABLE_BY_OTHERS, str(path))
        if found.st_size > limit:
            raise Refused(Reason.TOO_LARGE, f"{path}: {found.st_size:,} bytes, at most {limit:,}")
        parts, left = [], found.st_size + 1  # a file that grows meanwhile is no whole artifact
        while left and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
    except OSError as error:
        raise Refused(Reason.UNREADABLE, f"{path}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return b"".join(parts)


def read_start(path: Path, count: int) -> bytes | None:
    """The first bytes of a file, unchecked: they tell whether it was replaced; None where it cannot be read."""
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except OSError:
        return None
    try:
        return os.read(descriptor, count)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes, *, replace: bool = True) -> bool:
    """Write a file that only this user can read, in one step; False if it was there and `replace` is not set.

    The bytes are on disk before the name is: a reader, and a process that starts after a power cut, finds the
    whole file or none.
    """
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{next(_made)}-{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if replace:
            os.replace(temporary, path)
            return True
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
            return True
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _check_owner(found: os.stat_result, path: Path, any_owner: bool) -> None:
    if not any_owner and found.st_uid != os.geteuid():
        raise Refused(Reason.OTHER_OWNER, str(path))
    if found.st_mode & _OTHERS_WRITE:
        raise Refused(Reason.WRITABLE_BY_OTHERS, str(path))
