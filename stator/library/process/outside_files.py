"""Rules for files that the call reads.   open(path).read(), os.stat(path)  ->  the contents, under a guard

In: the path of a file from outside that the call has not changed.  Out: its contents or its state, which a guard reads
again at each entry; a file that is not there raises as in eager.  Pipes, devices, files of the kernel and large files
are not read.  The time of the last read is no fact, so a program that has the whole state breaks: functions of os.path
read parts of it.
"""

from __future__ import annotations

import genericpath
import hashlib
import locale
import os
import posix
import posixpath
import stat
import sys
import types

from stator.breaks import Break
from stator.interp.frame import Raised
from stator.interp.noted_effects import PlainCall
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.source import Pinned

_OF_KERNEL = ("/proc/", "/sys/", "/dev/")
_PARTS = frozenset(function.__code__ for module in (genericpath, posixpath) for function in vars(module).values()
                   if isinstance(function, types.FunctionType) and function.__name__ != "getatime")
LARGEST = 1 << 22  # bytes that a guard reads at each entry

State = tuple[object, ...]


def state_of(path: str) -> State:
    """A pure reader for guards: what os.stat says, but for the time of the last read; or the error."""
    try:
        found = os.stat(path)
        return tuple(getattr(found, name) for name in dir(found) if name.startswith("st_") and "atime" not in name)
    except (OSError, ValueError) as error:
        return type(error).__name__, getattr(error, "errno", None)


def directory() -> str | None:
    """A pure reader for guards: the working directory."""
    try:
        return os.getcwd()
    except OSError:
        return None


def contents(path: str) -> bytes | OSError | None:
    """The data of a file; the error for one that is not there, None for what is not to be read."""
    try:
        if not stat.S_ISREG((found := os.stat(path)).st_mode) or found.st_size > LARGEST:
            return None
        with open(path, "rb") as file:
            data = file.read()
        return data if len(data) == found.st_size else None
    except FileNotFoundError as error:
        return error
    except (OSError, ValueError):
        return None


def digest(path: str) -> bytes | None:
    """A pure reader for guards: the contents of a file, shortened; None where it is not there."""
    data = contents(path)
    return hashlib.blake2b(data).digest() if isinstance(data, bytes) else None


def read_file(vm: VM, path: str) -> bytes:
    """The contents of a file from outside."""
    refuse_changed(vm, path)
    data = contents(path)
    if data is None:
        raise Break("SB015", "builtins.open")
    vm.heap.guard_call(digest, hashlib.blake2b(data).digest() if isinstance(data, bytes) else None, Pinned(path))
    if isinstance(data, OSError):
        raise Raised(FileNotFoundError(data.errno, data.strerror, path))
    return data


def refuse_changed(vm: VM, path: str) -> None:
    """Break where the call has changed files, and this may be one of them, or where the kernel makes it up."""
    if "\0" in path or os.path.realpath(path).startswith(_OF_KERNEL):
        raise Break("SB013", "a file of the kernel, which changes when it is read")
    changed = [each.args[0] for each in vm.effects.noted if type(each) is PlainCall and each.args
               and getattr(each.function, "__name__", "") in ("write_file", "unlink", "remove")]
    changed += [each.name for each in vm.effects.files.opened if each.mode.startswith("w")]
    if any(os.path.realpath(each) == os.path.realpath(path) for each in changed) or vm.effects.watched:
        raise Break("SB015", "a file that the call may have changed")


def text_encoding(vm: VM) -> str | None:
    """The encoding of files that are opened without one; None for others than UTF-8."""
    if sys.flags.warn_default_encoding:
        return None
    found = locale.getpreferredencoding(False)
    vm.heap.guard_call(locale.getpreferredencoding, found, Pinned(False))
    return found if found in ("utf-8", "UTF-8") else None


@rule(posix.stat)
def _stat(vm: VM, path: object, *, dir_fd: object = None, follow_symlinks: object = True) -> os.stat_result:
    if vm.running.code not in _PARTS or type(path) is not str or dir_fd is not None or follow_symlinks is not True:
        raise Break("SB013", "posix.stat: asks the operating system")
    refuse_changed(vm, path)
    vm.heap.guard_call(state_of, state_of(path), Pinned(path))
    try:
        return os.stat(path)
    except (OSError, ValueError) as error:
        raise Raised(error.with_traceback(None)) from None


@rule(posix.getcwd)
def _getcwd(vm: VM) -> str:
    found = directory()
    if found is None:
        raise Break("SB013", "posix.getcwd: asks the operating system")
    vm.heap.guard_call(directory, found)
    return found
