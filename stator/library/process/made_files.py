"""Files written inside.   open(path, "w"), write, close, open(path)  ->  the text, and an effect that writes the file

In: a file that the call opens to write, or one that it has written before.  Out: an object that keeps the data; closing
it is an effect that writes the file, and so is os.unlink.  A file that is still open at the end, and
one that leaves the call break: their contents and positions are state of the process.  Files that the call only reads
are in outside_files.
"""

from __future__ import annotations

import builtins
import io
import os
import posix
from collections.abc import Iterable
from typing import TypeVar

from stator.breaks import Break
from stator.interp.noted_effects import PlainCall, note
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.process.outside_files import read_file, text_encoding
from stator.source import Pinned

_Self = TypeVar("_Self", bound="File")
_KINDS = {"r": io.TextIOWrapper, "w": io.TextIOWrapper, "rb": io.BufferedReader, "wb": io.BufferedWriter}


class File:
    """A file of the call, interpreted; the names of its attributes are those of `io`."""

    def __init__(self, path: str, mode: str, data: bytes, encoding: str | None) -> None:
        self.name, self.mode, self.closed, self.encoding = path, mode, False, encoding
        self._stream: io.StringIO | io.BytesIO = io.BytesIO(data) if encoding is None else \
            io.StringIO(data.decode("utf-8"), None if mode == "r" else "")

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # isinstance() asks for it
        return _KINDS[self.mode]

    def __getattr__(self, name: str) -> object:
        return refuse_use()

    def _check(self, reads: bool) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file." if self.encoding is not None or reads
                             else "write to closed file")
        if reads is not self.mode.startswith("r"):
            raise io.UnsupportedOperation(("not readable" if reads else "not writable") if self.encoding is not None
                                          else "read" if reads else "write")

    def read(self, size: int | None = -1) -> str | bytes:
        self._check(True)
        return self._stream.read(size)

    def readline(self, size: int = -1) -> str | bytes:
        self._check(True)
        return self._stream.readline(size)

    def readlines(self, hint: int = -1) -> list[str] | list[bytes]:
        self._check(True)
        return self._stream.readlines(hint)

    def __iter__(self: _Self) -> _Self:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        return self

    def __next__(self) -> str | bytes:
        self._check(True)
        line = self._stream.readline()
        if not line:
            raise StopIteration
        return line

    def write(self, data: str | bytes) -> int:
        self._check(False)
        if self.encoding is not None and not isinstance(data, str):
            raise TypeError(f"write() argument must be str, not {type(data).__name__}")
        return self._stream.write(data)  # type: ignore[arg-type]

    def writelines(self, lines: Iterable[str] | Iterable[bytes]) -> None:
        for line in lines:
            self.write(line)

    def seek(self, offset: int, whence: int = 0) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if offset or whence or not self.mode.startswith("r"):
            refuse_use()
        return self._stream.seek(0)

    def flush(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            data = self._stream.getvalue()
            end(self, data if isinstance(data, bytes) else data.encode(self.encoding or "utf-8"))

    def __enter__(self: _Self) -> _Self:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def end(file: File, data: bytes) -> None: ...
def refuse_use() -> str: ...  # type: ignore[empty-body]


@rule(refuse_use)
def _refuse_use(vm: VM) -> None:
    raise Break("SB015", "a method or attribute of a file")


@rule(end)
def _end(vm: VM, file: File, data: bytes) -> None:
    files = vm.effects.files
    files.opened.remove(file)
    if file.mode.startswith("w"):
        files.written[file.name] = data
        note(vm, PlainCall(write_file, (file.name, data), {}), False)


def write_file(path: str, data: bytes) -> None:
    """Write a file; called by the residual."""
    with open(path, "wb") as file:
        file.write(data)


def may_write(path: str) -> bool:
    """A pure reader for guards: whether a file can be made there, or replaced."""
    return os.access(path, os.W_OK) and os.path.isfile(path) or not os.path.lexists(path) \
        and os.access(os.path.dirname(path) or ".", os.W_OK)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@rule(builtins.open)
def _open(vm: VM, file: object, mode: object = "r", buffering: int = -1, encoding: object = None,
          errors: object = None, newline: object = None, closefd: object = True, opener: object = None) -> object:
    files = vm.effects.files
    if encoding is None and mode in ("r", "w"):
        encoding = text_encoding(vm)
    is_plain = type(file) is str and mode in _KINDS and (
        mode in ("rb", "wb") and encoding is None or mode in ("r", "w") and encoding in ("utf-8", "UTF-8", "utf8"))
    if not is_plain or buffering != -1 or errors is not None or newline is not None or closefd is not True \
            or opener is not None or any(each.name == file and "w" in f"{mode}{each.mode}" for each in files.opened):
        raise Break("SB015", "builtins.open")
    assert type(file) is str
    data = files.written.get(file, b"") if mode in ("r", "rb") else b""
    if mode in ("r", "rb") and file not in files.written:
        data = read_file(vm, file)
        if encoding is not None and not _is_utf8(data):
            raise Break("SB015", "builtins.open of a file in another encoding")
    elif file not in files.written:
        if not may_write(file):
            raise Break("SB015", "builtins.open of a file that cannot be written")
        vm.heap.guard_call(may_write, True, Pinned(file))
    made = vm.call_sync(File, (file, mode, data, encoding))
    files.opened.append(made)
    return made


@rule(posix.unlink, posix.remove)
def _unlink(vm: VM, callee: object, path: object, *, dir_fd: object = None) -> None:
    files = vm.effects.files
    if type(path) is not str or dir_fd is not None or path not in files.written:
        raise Break("SB015", "a file from outside is removed")
    del files.written[path]
    note(vm, PlainCall(callee, (path,), {}), False)


def refuse_open_files(vm: VM) -> None:
    """Break at the end of a call that leaves a file open."""
    if vm.effects.files.opened:
        raise Break("SB015", "a file that is open at the end of the call", whole_call=True)
