"""Rules for pickle.   pickle.dumps(obj)  ->  the pickler that the standard library has in Python, interpreted

In: a value, or bytes.  Out: the bytes, or the value, as the C code of pickle makes them.  C code would read the whole
state of an object past the shadows and run its methods natively, so `pickle._Pickler` and `pickle._Unpickler` run in
its place: `__reduce_ex__`, `__getstate__`, copyreg and the classes that a pickle names are interpreted as any code is.
Plain values take a short cut: constants, and lists, tuples, dicts and sets of them, exactly of these classes.  C code
reads their shadows, filled and guarded.  Identity of texts decides over the bytes, and is guarded too.  Errors of the
two differ in text: a pickling that fails breaks.
"""

from __future__ import annotations

import _compat_pickle
import _pickle
import builtins
import encodings
import io
import pickle
import pickletools
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

from stator.breaks import Break
from stator.heap.raw_access import instance_dict
from stator.host.own_code import OWN_FOLDER
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.rule_registry import rule
from stator.interp.vm import VM

_PLAIN = (str, bytes, int, float, bool, type(None), complex)
_CONTAINERS = (list, tuple, dict, set, frozenset)
_ATOMS = (type(None), bool, int, float)
_CALLS = frozenset("GLOBAL STACK_GLOBAL INST OBJ NEWOBJ NEWOBJ_EX REDUCE BUILD EXT1 EXT2 EXT4 PERSID BINPERSID".split())


class Parts:
    """A file that keeps what is written to it."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.parts.append(data)


class Framer(pickle._Framer):  # type: ignore[misc, name-defined]
    """Frames of protocol 4, as `pickle._Framer` cuts them, without views of buffers."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self.file_write = write
        self.current: list[bytes] | None = None
        self.size = 0

    def start_framing(self) -> None:
        self.current, self.size = [], 0

    def end_framing(self) -> None:
        if self.current and self.size:
            self.commit_frame(force=True)
            self.current = None

    def commit_frame(self, force: bool = False) -> None:
        if self.current is not None and (self.size >= self._FRAME_SIZE_TARGET or force):
            data = b"".join(self.current)
            if len(data) >= self._FRAME_SIZE_MIN:
                self.file_write(b"\x95" + len(data).to_bytes(8, "little"))
            self.file_write(data)
            self.current, self.size = [], 0

    def write(self, data: bytes) -> object:
        if self.current is None:
            return self.file_write(data)
        self.current.append(data)
        self.size += len(data)
        return len(data)

    def write_large_bytes(self, header: bytes, payload: bytes) -> None:
        if self.current:
            self.commit_frame(force=True)
        self.file_write(header)
        self.file_write(payload)


class Pickler(pickle._Pickler):  # type: ignore[misc, name-defined]
    """The pickler in Python; numbers are never in its memo, so nothing depends on their identity."""

    def __init__(self, file: Parts, protocol: int | None, fix_imports: bool) -> None:
        pickle._Pickler.__init__(self, file, protocol, fix_imports=fix_imports)  # type: ignore[attr-defined]
        self.framer = Framer(file.write)
        self.write = self.framer.write
        self._write_large_bytes = self.framer.write_large_bytes

    def save(self, obj: object, save_persistent_id: bool = True) -> None:
        if type(obj) in _ATOMS:
            self.dispatch[type(obj)](self, obj)  # type: ignore[arg-type]
        else:
            pickle._Pickler.save(self, behind_callback(obj), save_persistent_id)  # type: ignore[attr-defined]


def behind_callback(obj: object) -> object:
    """The C callable that a C iterator of the trace holds behind a function of ours."""
    return obj


rule(behind_callback)(lambda vm, obj: vm.functions.callbacks.get(id(obj), obj))


class Unpickler(pickle._Unpickler):  # type: ignore[misc, name-defined]
    """The unpickler in Python, without the audit event of each class that it finds."""

    proto: int
    fix_imports: bool

    def find_class(self, module: str, name: str) -> object:
        if self.proto < 3 and self.fix_imports:
            if (module, name) in _compat_pickle.NAME_MAPPING:
                module, name = _compat_pickle.NAME_MAPPING[module, name]
            elif module in _compat_pickle.IMPORT_MAPPING:
                module = _compat_pickle.IMPORT_MAPPING[module]
        __import__(module, level=0)
        found: object = sys.modules[module]
        for part in name.split(".") if self.proto >= 4 else (name,):
            found = getattr(found, part)
        return found


def python_dumps(obj: object, protocol: int | None = None, *, fix_imports: bool = True) -> bytes:
    file = Parts()
    Pickler(file, protocol, fix_imports).dump(obj)
    return b"".join(file.parts)


def python_loads(data: bytes, *, fix_imports: bool = True, encoding: str = "ASCII", errors: str = "strict") -> object:
    return Unpickler(io.BytesIO(data), fix_imports=fix_imports, encoding=encoding, errors=errors).load()


def run_python(vm: VM, function: Callable[..., object], value: object, options: dict[str, object]) -> object:
    try:
        return vm.call_sync(function, (value,), options)
    except Raised as raised:
        trace = raised.exc.__traceback__
        while trace is not None and _is_pickler(trace.tb_frame):
            trace = trace.tb_next
        inner = any(_is_pickler(frame) for frame, _ in traceback.walk_tb(trace))
        if not inner and (trace is not None or is_a(raised.exc, (TypeError, Warning))):  # of a __reduce_ex__, as in C
            raise Raised(raised.exc.with_traceback(trace)) from None
        raise Break("SB001", f"pickling that raises {type(raised.exc).__name__}: {raised.exc}") from None


def _is_pickler(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename == pickle.__file__ or frame.f_code.co_filename.startswith(OWN_FOLDER)


def is_plain(vm: VM, value: Any, seen: dict[int, object]) -> bool:
    """Whether a value has no way of its own of being pickled."""
    cls = type(value)
    if cls in (str, bytes):
        vm.guard_identity(value)
    if cls in _PLAIN or id(value) in seen:
        return True
    if cls not in _CONTAINERS or cls in (set, frozenset) and id(value) in vm.heap.by_standin:
        return False
    seen[id(value)] = value
    return all([is_plain(vm, part, seen) for part in ((*value, *value.values()) if cls is dict else value)])


@rule(_pickle.dumps)
def _dumps(vm: VM, obj: object, protocol: object = None, *, fix_imports: object = True,
           buffer_callback: object = None) -> object:
    protocol, fix_imports = specialise_deep(vm, (protocol, fix_imports))
    if type(protocol) not in _ATOMS or type(fix_imports) not in _ATOMS or buffer_callback is not None:
        raise Break("SB001", "pickle.dumps with a buffer callback")
    options = {"protocol": protocol, "fix_imports": fix_imports}
    if type(obj) in (*_PLAIN, *_CONTAINERS):
        vm.heap.expose_deep(obj)
        obj = specialise_deep(vm, obj)
        if is_plain(vm, obj, {}):
            return vm.native_unhooked(_pickle.dumps, (obj,), options)
    return run_python(vm, python_dumps, obj, options)


@rule(_pickle.loads)
def _loads(vm: VM, data: object, /, *, fix_imports: object = True, encoding: object = "ASCII",
           errors: object = "strict", buffers: object = None) -> object:
    options = {"fix_imports": fix_imports, "encoding": encoding, "errors": errors}
    options = dict(zip(options, specialise_deep(vm, tuple(options.values())), strict=True))
    if type(data) is not bytes or buffers is not None or any(type(each) not in _PLAIN for each in options.values()):
        raise Break("SB001", "pickle.loads of something else than bytes, or with buffers")
    try:
        names = {code.name for code, _, _ in pickletools.genops(data)}
    except ValueError as error:
        raise Break("SB001", f"pickle.loads of something that is no pickle ({error})") from None
    if not names & _CALLS:
        return vm.native_unhooked(_pickle.loads, (data,), options)
    return run_python(vm, python_loads, data, options)


@rule(*{id(each): each for each in (vars(cls).get("__reduce__") for cls in vars(builtins).values()
                                    if isinstance(cls, type) and issubclass(cls, BaseException)) if each}.values())
def _reduce_exception(vm: VM, callee: Callable[..., tuple[object, ...]], exc: object, /) -> object:
    """Parts of an exception: C code gives its dict only where it has one, and the trace may have made an empty one."""
    vm.heap.expose(exc)
    if (tracker := vm.heap.tracker_of(exc)) is not None:
        vm.heap.expose_attributes(tracker)
    made = vm.native_unhooked(callee, (exc,))
    if len(made) < 3 or made[2] or id(instance_dict(exc)) in vm.heap.dicts.owners:
        return made
    if tracker is not None:
        raise Break("SB005", f"{callee.__name__} of a {type(exc).__name__} from outside")
    return made[:2]


@rule(encodings.search_function)
def _find_codec(vm: VM, encoding: str) -> object:
    """str.encode and its like look for codecs of the standard library, and keep them for the process."""
    return vm.native_unhooked(encodings.search_function, (encoding,))
