"""Rules for C methods of small types.   struct.pack_into("<i", buffer, 0, n)  ->  the stand-in of the buffer is written

In: a call that writes to another argument than its first, makes a module by hand, shows a given moment or exits.  Out:
its value or exception; writes to the stand-in of a bytearray are effects like any other.
"""

from __future__ import annotations

import _io
import _struct
import array
import io
import sys
import time
import types
from collections.abc import Callable
from typing import cast

from stator.breaks import Break
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.rule_registry import LISTED, rule
from stator.interp.vm import VM


def _written(vm: VM, callee: Callable[..., object], buffer: object, args: tuple[object, ...],
             named: dict[str, object]) -> object:
    if type(buffer) is not bytearray and not (type(buffer) is array.array and vm.heap.tracker_of(buffer) is None):
        raise Break("SB006", f"{callee.__name__} into a {type(buffer).__name__}")
    vm.heap.note_write(buffer)
    found: object = vm.native_unhooked(callee, specialise_deep(vm, args), named)
    return found


@rule(_struct.pack_into)
def _pack_into(vm: VM, /, *args: object, **named: object) -> object:
    return _written(vm, _struct.pack_into, args[1] if len(args) > 1 else bytearray(), args, named)


@rule(_struct.Struct.pack_into)
def _pack_into_by(vm: VM, /, *args: object, **named: object) -> object:
    return _written(vm, _struct.Struct.pack_into, args[1] if len(args) > 1 else bytearray(), args, named)


@rule(io.BytesIO.readinto)
def _read_into(vm: VM, stream: object, buffer: object, /) -> object:
    if vm.heap.tracker_of(stream) is not None:
        raise Break("SB006", "readinto of a stream from outside")
    return _written(vm, io.BytesIO.readinto, buffer, (stream, buffer), {})


@rule(_io._IOBase.fileno, _io._IOBase.isatty)
def _file_fact(vm: VM, callee: Callable[..., object], stream: object, /) -> object:
    """Streams in memory have no number, and raise; whether one is closed decides about `isatty`. Others are denied."""
    if type(stream) is not io.StringIO and type(stream) is not io.BytesIO or \
            callee is _io._IOBase.isatty and vm.heap.tracker_of(stream) is not None:
        raise Break("SB015", f"_io._IOBase.{callee.__name__}")
    found: object = vm.native_unhooked(callee, (stream,))
    return found


@rule(types.ModuleType.__new__)
def _new_module(vm: VM, cls: type[types.ModuleType], /, *args: object, **named: object) -> object:
    made: object = vm.native_unhooked(types.ModuleType.__new__, (cls, *args), named)
    vm.fresh[id(made)] = made
    return made


@rule(types.ModuleType.__init__)
def _init_module(vm: VM, module: object, /, *args: object, **named: object) -> None:
    if id(module) not in vm.fresh:
        raise Break("SB006", "module.__init__ of a module from outside")
    vm.native_unhooked(types.ModuleType.__init__, (module, *args), named)


@rule(time.gmtime, time.asctime)
def _of_moment(vm: VM, callee: Callable[..., object], given: object = None, /) -> object:
    """Of a moment that is given; without one they read the clock."""
    given = specialise_deep(vm, given)
    plain = type(given) in (int, float) or is_a(given, tuple) and all(type(part) is int for part in _items(given))
    return vm.native_unhooked(callee, (given,)) if plain else LISTED


@rule(sys.exit)
def _exit(vm: VM, status: object = None, /) -> None:
    if is_a(status, SystemExit):
        raise Raised(vm.set_context(status), spoken=True)  # type: ignore[arg-type]
    if is_a(status, tuple) and type(status) is not tuple:
        raise Break("SB013", "sys.exit() of a tuple of another class, which becomes the arguments of the exception",
                    whole_call=True)
    parts = () if status is None else status if is_a(status, tuple) else (status,)
    raise Raised(vm.set_context(vm.call_sync(SystemExit, parts)), spoken=True)  # type: ignore[arg-type]


def _items(given: object) -> tuple[object, ...]:
    """The items that C code finds in a tuple, past an `__iter__` of a subclass."""
    return tuple(tuple.__iter__(cast("tuple[object, ...]", given)))
