"""Rows for what looks into the interpreter: frames, code, modules, sys, gc, weak references, contexts, abc.

In: the modules and types. Out: rows. Nearly all of it asks about state that the compiled function does not
have, so it is a rule or a refusal.
"""

from __future__ import annotations

import _abc
import _contextvars
import _typing
import _weakref
import gc
import sys
import types

from stator.native.rows_declare import (
    NativeClass,
    attribute_slots,
    attributes,
    deep,
    deny,
    effect,
    impure,
    optional_module,
    outside,
    pure,
    shell,
    special,
)
from stator.native.rows_values import declare_named_fields

FRAMES = "frames of the program do not exist in the compiled function"
PROCESS_WIDE = "changes a setting of the process"
LIFETIME = "depends on when objects die"


def _code_objects() -> None:
    attribute_slots(types.CodeType)
    pure(types, "CodeType", calls_back=True)
    pure(types.CodeType, "__new__ replace __replace__ _varname_from_oparg", calls_back=True)
    deep(types.CodeType, "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__", compares=True)
    shell(types.CodeType, "co_lines co_positions co_branches __sizeof__")
    impure(types.CodeType, "__repr__", why="shows an address, which differs from run to run")
    attributes(types.CodeType, "*", NativeClass.PURE_SHELL, why="code is immutable")

    special(types, "FunctionType MethodType CellType ModuleType", why="holds what the interpreter tracks")
    shell(types, "MappingProxyType", calls_back=True, why="a live view")
    pure(types, "SimpleNamespace", calls_back=True)
    pure(types, "GenericAlias UnionType", calls_back=True)
    shell(types, "NoneType EllipsisType NotImplementedType")
    for owner in (types.CellType, types.ModuleType):
        special.whole_type(owner, why="the interpreter tracks cells and module scopes")
    deny(types, "TracebackType", code="SB020")
    attribute_slots(types.TracebackType)
    deny(types.TracebackType, "*", code="SB020")
    attributes(types.TracebackType, "*", NativeClass.SPECIAL, why=FRAMES)
    deny.whole_type(types.FrameType, code="SB008", why=FRAMES)
    pure(types, "CapsuleType", calls_back=True)


def _sys() -> None:
    shell(sys, "intern is_finalizing getdefaultencoding getfilesystemencoding getfilesystemencodeerrors "
          "_is_gil_enabled _is_interned is_stack_trampoline_active")  # fmt: skip
    special(sys, "getrecursionlimit", why="a setting, guarded by its value; the trace runs under its own")
    shell(sys, "get_int_max_str_digits", depends=sys.get_int_max_str_digits, why="a setting, guarded by its value")
    special(sys, "exc_info exception", why="the interpreter keeps the exception state")
    special(sys, "getsizeof", why="a shadow may be of another size")
    special(sys, "exit", why="raises SystemExit in the interpreted frame")
    deny(sys, "_getframe _getframemodulename _current_frames _current_exceptions call_tracing settrace setprofile "
         "gettrace getprofile", code="SB008", why=FRAMES)  # fmt: skip
    effect(sys, "__displayhook__", formats=True)
    deny(sys, "__breakpointhook__ __excepthook__ __unraisablehook__",
         code="SB015")  # fmt: skip
    impure(sys, "getrefcount getallocatedblocks getunicodeinternedsize _getquickenedcount getswitchinterval "
           "getdlopenflags get_asyncgen_hooks get_coroutine_origin_tracking_depth")  # fmt: skip
    deny(sys, "*", code="SB006", why=PROCESS_WIDE)
    for record in (sys.version_info, sys.flags, sys.float_info, sys.int_info, sys.hash_info, sys.thread_info):
        declare_named_fields(type(record))
    declare_named_fields(type(sys.get_asyncgen_hooks()))


def _object_lifetimes() -> None:
    impure(gc, "isenabled get_debug get_count get_threshold get_stats is_tracked is_finalized get_freeze_count")
    deny(gc, "*", code="SB019", why=LIFETIME)
    impure(_weakref, "getweakrefcount", code="SB019", why=LIFETIME)
    deny(_weakref, "proxy getweakrefs", code="SB019", why=LIFETIME)
    special(_weakref, "_remove_dead_weakref ref", why="a reference to a shadow must be one to its original")
    reference = _weakref.ref
    attribute_slots(reference)
    outside(reference, "__call__", why="the referent, or None when it died")
    special(reference, "*", why="a reference to a shadow must be one to its original")
    attributes(reference, "*", NativeClass.SPECIAL, why="a function called when the referent dies")
    for owner in (_weakref.ProxyType, _weakref.CallableProxyType):
        deny(owner, "*", code="SB019", why=LIFETIME)


def _contexts() -> None:
    shell(_contextvars, "ContextVar", why="a new variable")
    shell(_contextvars.ContextVar, "__new__ __class_getitem__")
    outside(_contextvars.ContextVar, "get", why="the value in the current context")
    special(_contextvars.ContextVar, "set reset", why="changes the current context")
    impure(_contextvars.ContextVar, "__repr__", why="shows an address, which differs from run to run")
    special(_contextvars.ContextVar, "__hash__", why="the identity of a shadow is that of its original")
    attributes(_contextvars.ContextVar, "name", NativeClass.PURE_SHELL)
    special(_contextvars, "copy_context Context", why="reads the whole current context")
    special.whole_module(_contextvars, why="reads or changes a context")


def _hooks_of_python_modules() -> None:
    special(_abc, "*", why="keeps caches that the trace must not fill")
    special.whole_module(_abc, why="keeps caches that the trace must not fill")
    shell(_typing, "_idfunc", fresh=None)
    special.whole_module(_typing, why="type variables are read through the attribute rules")
    warnings = optional_module("_warnings")
    effect(warnings, "warn warn_explicit", formats=True, why="where it points depends on the interpreted frames")
    deny(warnings, "*", code="SB006", why=PROCESS_WIDE)
    tracing = optional_module("_tracemalloc")
    deny(tracing, "*", code="SB013")


_code_objects()
_sys()
_object_lifetimes()
_contexts()
_hooks_of_python_modules()
