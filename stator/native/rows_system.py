"""Rows for the operating system: files, processes, threads, sockets, signals, foreign code, pickles.

In: the modules. Out: rows. In-memory files are ordinary mutable objects; nearly all else is refused.
"""

from __future__ import annotations

import _io
import _stat
import _thread
import errno
import marshal
import posix

from stator.native.rows_declare import (
    NativeClass,
    attribute_slots,
    attributes,
    deep,
    deny,
    effect,
    impure,
    is_c_type,
    mutates,
    optional_module,
    pure,
    shell,
    special,
)
from stator.native.rows_values import declare_named_fields

BOTH_KINDS = "shared by real files and in-memory ones; only the latter may go on"
SYSTEM_STATE = "asks the operating system"
TAKEN = "taken by the residual, and released when it is done"


def _posix() -> None:
    pure(posix, "fspath _path_normpath _path_splitroot_ex _path_splitroot waitstatus_to_exitcode WCOREDUMP "
         "WIFCONTINUED WIFSTOPPED WIFSIGNALED WIFEXITED WEXITSTATUS WTERMSIG WSTOPSIG major minor makedev strerror",
         calls_back=True)  # fmt: skip
    impure(posix, "access stat lstat fstat listdir readlink scandir isatty getcwd getcwdb ctermid uname times "
           "cpu_count getloadavg urandom getrandom get_terminal_size sysconf confstr statvfs fstatvfs pathconf "
           "fpathconf getegid geteuid getgid getgrouplist getgroups getpid getpgrp getppid getuid getlogin getpgid "
           "getresuid getresgid getsid getpriority sched_getaffinity sched_getparam sched_getscheduler "
           "sched_get_priority_max sched_get_priority_min sched_rr_get_interval device_encoding getxattr listxattr "
           "get_inheritable get_blocking ttyname umask tcgetpgrp _path_isdir _path_isfile _path_exists _path_islink "
           "_inputhook", why=SYSTEM_STATE)  # fmt: skip
    for owner in (value for value in vars(posix).values() if is_c_type(value) and issubclass(value, tuple)):
        declare_named_fields(owner)
        pure(posix, owner.__name__, calls_back=True)
    deny.whole_module(posix, code="SB015")


def _memory_files() -> None:
    pure(_io, "StringIO BytesIO", calls_back=True)
    for owner in (_io.StringIO, _io.BytesIO):
        attribute_slots(owner)
        shell(owner, "__new__")
        shell(owner, "readable writable seekable isatty tell __iter__", fresh=None)
        pure(owner, "getvalue __sizeof__")
        mutates(owner, "__init__ close flush read read1 readline readlines truncate seek write writelines "
                "__setstate__", calls_back=True)  # fmt: skip
        mutates(owner, "__next__", fresh=True)
        special(owner, "readinto getbuffer __getstate__", why="changes or shows more than itself")
        attributes(owner, "closed newlines line_buffering", NativeClass.PURE_SHELL)
        attributes(owner, "*", NativeClass.SPECIAL)
    decoder = _io.IncrementalNewlineDecoder
    attribute_slots(decoder)
    pure(_io, "IncrementalNewlineDecoder", calls_back=True)
    shell(decoder, "__new__")
    mutates(decoder, "__init__ decode getstate setstate reset", calls_back=True)
    attributes(decoder, "*", NativeClass.PURE_SHELL)


def _files() -> None:
    for owner in (_io._IOBase, _io._TextIOBase, _io._BufferedIOBase):
        special(owner, "__new__ __enter__ __exit__ __iter__ __next__ __del__ readline readlines writelines readable "
                "writable seekable isatty close flush tell seek truncate _checkClosed _checkSeekable _checkReadable "
                "_checkWritable", why=BOTH_KINDS)  # fmt: skip
        attributes(owner, "*", NativeClass.SPECIAL, why=BOTH_KINDS)
    shell(_io, "text_encoding", calls_back=True, fresh=None)
    effect(_io.TextIOWrapper, "write", formats=True, why="returns the number of characters; flushing follows")
    effect(_io.TextIOWrapper, "flush", why="follows the writes recorded before it")
    effect(_io.BufferedWriter, "write flush", why="replayed in order")
    special(_io.TextIOWrapper, "writable readable seekable isatty fileno", why="asked of the standard streams")
    attributes(_io.TextIOWrapper, "*", NativeClass.SPECIAL, why="asked of the standard streams")
    deny.whole_module(_io, code="SB015")


def _threads() -> None:
    impure(_thread, "get_ident get_native_id _count stack_size _is_main_interpreter _get_main_thread_ident")
    special(_thread, "allocate_lock allocate RLock", why=TAKEN)
    for owner in (type(_thread.allocate_lock()), _thread.RLock):
        special(owner, "acquire acquire_lock __enter__ release release_lock __exit__ locked locked_lock _is_owned",
                why=TAKEN)
    deny.whole_module(_thread, code="SB018")
    deny.whole_module(optional_module("_queue"), code="SB018")
    deny.whole_module(optional_module("_asyncio"), code="SB018")
    deny.whole_module(optional_module("_multiprocessing"), code="SB018")


def _serialisation() -> None:
    deep(marshal, "dumps", calls_back=True, why="writes the value out, whatever it holds")
    pure(marshal, "loads", calls_back=True)
    deny(marshal, "*", code="SB015")
    deny.whole_module(optional_module("_pickle"), code="SB001",
                      why="reads the whole state of what it is given, past the shadows")


def _outside_world() -> None:
    pure(_stat, "*", calls_back=True)
    impure.whole_module(optional_module("_locale"), why="reads the locale of the process")
    impure.whole_module(optional_module("_uuid"))
    for name in ("_socket", "_ssl", "select", "_posixsubprocess", "_posixshmem", "mmap", "fcntl", "termios", "pwd",
                 "grp", "resource", "readline", "_curses", "_sqlite3", "faulthandler"):  # fmt: skip
        deny.whole_module(optional_module(name), code="SB015")
    for name in ("_signal", "atexit", "_imp"):
        deny.whole_module(optional_module(name), code="SB006", why="changes the process")
    for name in ("_ctypes", "_lsprof", "_symtable", "_opcode"):
        deny.whole_module(optional_module(name), code="SB001", why="foreign code, or a look into the interpreter")
    shell(errno, "*")


_posix()
_memory_files()
_files()
_threads()
_serialisation()
_outside_world()
