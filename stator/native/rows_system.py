"""Rows for the interpreter and the operating system: frames, modules, sys, gc, contexts, files, threads, sockets.

In: the modules and types. Out: rows. Nearly all of it reads state that the compiled function does not have or changes
the process, so it is a rule or a refusal. In-memory files are ordinary mutable objects.
"""

from __future__ import annotations

import _abc
import _contextvars
import _io
import _stat
import _thread
import _typing
import _weakref
import errno
import gc
import marshal
import posix
import sys
import types

from stator.native import rows_declare as row
from stator.native.rows_library import declare_named_fields

owner: type
FRAMES = "frames of the program do not exist in the compiled function"
PROCESS_WIDE = "changes a setting of the process"
LIFETIME = "depends on when objects die"
BOTH_KINDS = "shared by real files and in-memory ones; only the latter may go on"
SYSTEM_STATE = "asks the operating system"
TAKEN = "taken by the residual, and released when it is done"

# Code objects.
row.pure(types, "CodeType", calls_back=True)
row.pure(types.CodeType, "__new__ replace __replace__ _varname_from_oparg", calls_back=True)
row.deep(types.CodeType, "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__", compares=True)
row.shell(types.CodeType, "co_lines co_positions co_branches __sizeof__")
row.also(types.CodeType, "replace __replace__ co_lines co_positions co_branches __eq__ __ne__", shows_lines=True)
row.impure(types.CodeType, "__repr__", why="shows an address, which differs from run to run")
row.attributes(types.CodeType, "*", row.NativeClass.PURE_SHELL, why="code is immutable")

row.special(types, "FunctionType MethodType CellType ModuleType", why="holds what the interpreter tracks")
row.shell(types, "MappingProxyType", calls_back=True, why="a live view")
row.pure(types, "SimpleNamespace", calls_back=True)
row.pure(types, "GenericAlias UnionType", calls_back=True)
row.shell(types, "NoneType EllipsisType NotImplementedType")
for owner in (types.CellType, types.ModuleType):
    row.special.whole_type(owner, why="the interpreter tracks cells and module scopes")
row.deny(types, "TracebackType", code="SB020")
row.declare_slots(types.TracebackType)
row.deny(types.TracebackType, "*", code="SB020")
row.attributes(types.TracebackType, "*", row.NativeClass.SPECIAL, why=FRAMES)
row.deny.whole_type(types.FrameType, code="SB008", why=FRAMES)
row.pure(types, "CapsuleType", calls_back=True)

# Sys.
row.shell(sys, "intern is_finalizing getdefaultencoding getfilesystemencoding getfilesystemencodeerrors "
          "_is_gil_enabled _is_interned is_stack_trampoline_active")
row.special(sys, "getrecursionlimit", why="a setting, guarded by its value; the trace runs under its own")
row.special(sys, "get_int_max_str_digits set_int_max_str_digits", why="a setting, guarded by its value")
for read in (sys.getswitchinterval, sys.gettrace, sys.getprofile):
    row.shell(sys, read.__name__, depends=read, why="a setting, guarded by its value")
row.special(sys, "exc_info exception", why="the interpreter keeps the exception state")
row.special(sys, "getsizeof", why="a shadow may be of another size")
row.special(sys, "exit", why="raises SystemExit in the interpreted frame")
row.deny(sys, "_getframe _getframemodulename _current_frames _current_exceptions call_tracing settrace "
         "setprofile", code="SB008", why=FRAMES)
row.effect(sys, "__displayhook__", formats=True)
row.deny(sys, "__breakpointhook__ __excepthook__ __unraisablehook__", code="SB015")
row.impure(sys, "getrefcount getallocatedblocks getunicodeinternedsize _getquickenedcount "
           "getdlopenflags get_asyncgen_hooks get_coroutine_origin_tracking_depth")
row.deny(sys, "*", code="SB006", why=PROCESS_WIDE)
for record in (sys.version_info, sys.flags, sys.float_info, sys.int_info, sys.hash_info, sys.thread_info):
    declare_named_fields(type(record))
declare_named_fields(type(sys.get_asyncgen_hooks()))

# Object lifetimes.
for counted in (gc.get_threshold, gc.get_debug):
    row.shell(gc, counted.__name__, depends=counted, why="a setting, guarded by its value")
row.impure(gc, "isenabled", why="the collector is off while a call is traced, and while guards are evaluated")
row.impure(gc, "get_count get_stats is_tracked is_finalized get_freeze_count")
row.deny(gc, "*", code="SB019", why=LIFETIME)
row.impure(_weakref, "getweakrefcount", code="SB019", why=LIFETIME)
row.deny(_weakref, "getweakrefs", code="SB019", why=LIFETIME)
row.special(_weakref, "_remove_dead_weakref ref proxy", why="a reference to a shadow must be one to its original")
reference = _weakref.ref
row.outside(reference, "__call__", why="the referent, or None when it died")
row.special(reference, "*", why="a reference to a shadow must be one to its original")
row.attributes(reference, "*", row.NativeClass.SPECIAL, why="a function called when the referent dies")
for owner in (_weakref.ProxyType, _weakref.CallableProxyType):
    row.deny(owner, "*", code="SB019", why=LIFETIME)

# Contexts.
row.shell(_contextvars, "ContextVar", why="a new variable")
row.shell(_contextvars.Token, "__class_getitem__")
row.shell(_contextvars.ContextVar, "__new__ __class_getitem__")
row.outside(_contextvars.ContextVar, "get", why="the value in the current context")
row.special(_contextvars.ContextVar, "set reset", why="changes the current context")
row.impure(_contextvars.ContextVar, "__repr__", why="shows an address, which differs from run to run")
row.special(_contextvars.ContextVar, "__hash__", why="the identity of a shadow is that of its original")
row.attributes(_contextvars.ContextVar, "name", row.NativeClass.PURE_SHELL)
row.special(_contextvars, "copy_context Context", why="reads the whole current context")
row.special.whole_module(_contextvars, why="reads or changes a context")

# Hooks of python modules.
row.special(_abc, "*", why="keeps caches that the trace must not fill")
row.special.whole_module(_abc, why="keeps caches that the trace must not fill")
row.shell(_typing, "_idfunc", fresh=None)
row.special.whole_module(_typing, why="type variables are read through the attribute rules")
warnings = row.optional_module("_warnings")
row.effect(warnings, "warn warn_explicit", formats=True, why="where it points depends on the interpreted frames")
row.deny(warnings, "*", code="SB006", why=PROCESS_WIDE)
tracing = row.optional_module("_tracemalloc")
row.deny(tracing, "*", code="SB013")

# Posix.
row.shell(posix, "getpid", depends=posix.getpid, why="the number of the process, guarded by its value")
row.pure(posix, "fspath _path_normpath _path_splitroot_ex _path_splitroot waitstatus_to_exitcode WCOREDUMP "
         "WIFCONTINUED WIFSTOPPED WIFSIGNALED WIFEXITED WEXITSTATUS WTERMSIG WSTOPSIG major minor makedev "
         "strerror", calls_back=True)
row.impure(posix, "access stat lstat fstat listdir readlink scandir isatty getcwd getcwdb ctermid uname "
           "times cpu_count getloadavg urandom getrandom get_terminal_size sysconf confstr statvfs "
           "fstatvfs pathconf fpathconf getegid geteuid getgid getgrouplist getgroups getpgrp "
           "getppid getuid getlogin getpgid getresuid getresgid getsid getpriority sched_getaffinity "
           "sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min "
           "sched_rr_get_interval device_encoding getxattr listxattr get_inheritable get_blocking ttyname "
           "umask tcgetpgrp _path_isdir _path_isfile _path_exists _path_islink _inputhook", why=SYSTEM_STATE)
for owner in (value for value in vars(posix).values() if row.is_c_type(value) and issubclass(value, tuple)):
    declare_named_fields(owner)
    row.pure(posix, owner.__name__, calls_back=True)
row.deny.whole_module(posix, code="SB015")

# Memory files.
row.pure(_io, "StringIO BytesIO", calls_back=True)
for owner in (_io.StringIO, _io.BytesIO):
    row.shell(owner, "__new__")
    row.shell(owner, "readable writable seekable isatty tell __iter__", fresh=None)
    row.pure(owner, "getvalue __sizeof__")
    row.mutates(owner, "__init__ close flush read read1 readline readlines truncate seek write writelines "
                "__setstate__", calls_back=True)
    row.mutates(owner, "__next__", fresh=True)
    row.special(owner, "readinto getbuffer __getstate__", why="changes or shows more than itself")
    row.attributes(owner, "closed newlines line_buffering", row.NativeClass.PURE_SHELL)
    row.attributes(owner, "*", row.NativeClass.SPECIAL)
decoder = _io.IncrementalNewlineDecoder
row.pure(_io, "IncrementalNewlineDecoder", calls_back=True)
row.shell(decoder, "__new__")
row.mutates(decoder, "__init__ decode getstate setstate reset", calls_back=True)
row.attributes(decoder, "*", row.NativeClass.PURE_SHELL)

# Files.
for owner in (_io._IOBase, _io._TextIOBase, _io._BufferedIOBase):
    row.special(owner, "__new__ __enter__ __exit__ __iter__ __next__ __del__ readline readlines writelines "
                "readable writable seekable isatty close flush tell seek truncate _checkClosed "
                "_checkSeekable _checkReadable _checkWritable", why=BOTH_KINDS)
    row.attributes(owner, "*", row.NativeClass.SPECIAL, why=BOTH_KINDS)
row.shell(_io, "text_encoding", calls_back=True, fresh=None)
row.effect(_io.TextIOWrapper, "write", formats=True, why="returns the number of characters; flushing follows")
row.effect(_io.TextIOWrapper, "flush", why="follows the writes recorded before it")
row.effect(_io.BufferedWriter, "write flush", why="replayed in order")
row.special(_io.TextIOWrapper, "writable readable seekable isatty fileno", why="asked of the standard streams")
row.attributes(_io.TextIOWrapper, "*", row.NativeClass.SPECIAL, why="asked of the standard streams")
row.deny.whole_module(_io, code="SB015")

# Threads.
row.special(_thread, "get_ident", why="the number of the thread, guarded by its value")
row.impure(_thread, "get_native_id _count stack_size _is_main_interpreter _get_main_thread_ident")
row.special(_thread, "allocate_lock allocate RLock", why=TAKEN)
for owner in (type(_thread.allocate_lock()), _thread.RLock):
    row.special(owner, "acquire acquire_lock __enter__ release release_lock __exit__ locked locked_lock "
                "_is_owned", why=TAKEN)
row.deny.whole_module(_thread, code="SB018")
row.deny.whole_module(row.optional_module("_queue"), code="SB018")
row.deny.whole_module(row.optional_module("_asyncio"), code="SB018")
row.deny.whole_module(row.optional_module("_multiprocessing"), code="SB018")

# Serialisation.
row.deep(marshal, "dumps", calls_back=True, why="writes the value out, whatever it holds")
row.pure(marshal, "loads", calls_back=True)
row.deny(marshal, "*", code="SB015")
row.deny.whole_module(row.optional_module("_pickle"), code="SB001",
                      why="reads the whole state of what it is given, past the shadows")

# Outside world.
row.pure(_stat, "*", calls_back=True)
row.impure.whole_module(row.optional_module("_locale"), why="reads the locale of the process")
row.impure.whole_module(row.optional_module("_uuid"))
for name in ("_socket", "_ssl", "select", "_posixsubprocess", "_posixshmem", "mmap", "fcntl", "termios", "pwd",
             "grp", "resource", "readline", "_curses", "_sqlite3", "faulthandler"):
    row.deny.whole_module(row.optional_module(name), code="SB015")
for name in ("_signal", "atexit", "_imp"):
    row.deny.whole_module(row.optional_module(name), code="SB006", why="changes the process")
for name in ("_ctypes", "_lsprof", "_symtable", "_opcode"):
    row.deny.whole_module(row.optional_module(name), code="SB001", why="foreign code, or state of the interpreter")
row.shell(errno, "*")
