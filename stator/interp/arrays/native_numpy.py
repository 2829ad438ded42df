"""numpy's C code on arrays of the trace.   values[1] + 2  ->  run, on the stand-in's own memory

Arrays and what goes with them (numbers, dtypes, slices, containers of these) are all that such code may see.  A
floating-point error that numpy would warn of is a break: the warning belongs to the call, not to the trace.
"""

from __future__ import annotations

import contextlib
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.heap.adopt.outside_arrays import SCALARS
from stator.heap.blank_instances import CONSTANT_TYPES
from stator.host.value_kinds import is_a
from stator.interp.arrays.traced_numpy import concerns, has_form, read_traced, run_traced
from stator.interp.frame import Raised
from stator.interp.services import VM
from stator.shapes.symbolic_values import SYMBOLIC, specialise

_LAYOUT = frozenset({"shape", "ndim", "size", "dtype", "itemsize", "nbytes", "strides", "device"})
_VIEWS = frozenset({"T", "mT", "real", "imag"})
_PLAIN = SCALARS | CONSTANT_TYPES | {numpy.ndarray, numpy.ufunc, types.BuiltinFunctionType, type(numpy._NoValue)}
_CONTAINERS = (tuple, list, set, frozenset, torch.Size)


def run_on_arrays(vm: VM, function: Callable[..., Any], args: tuple[Any, ...],
                  kwargs: dict[str, Any] | None = None) -> Any:
    """Call a C function of numpy, or an operator."""
    if concerns(vm, (*args, *kwargs.values()) if kwargs else args, feeding=has_form(function, args)):
        return run_traced(vm, function, args, kwargs)
    args = tuple([_plain(vm, value) for value in args])
    kwargs = {name: _plain(vm, value) for name, value in kwargs.items()} if kwargs else {}
    shared = [(standin, standin.tobytes()) for standin in vm.heap.faces.watched.values()]
    try:
        with warnings_raise():
            result = vm.native_unhooked(function, args, kwargs)  # it meets no code of the program
    except Raised as raised:
        if is_a(raised.exc, (FloatingPointError, Warning)):
            raise Break("SB015", f"numpy warns: {raised.exc}", asks_caller=True) from None
        raise
    if vm.heap.faces.copies:
        vm.heap.faces.note_changes()
    for standin, before in shared:
        if standin.tobytes() != before:
            raise Break("SB006", "a write to an array whose memory is seen through another object, too")
    refuse_objects(vm, result)
    return result


@contextlib.contextmanager
def warnings_raise() -> Iterator[None]:
    """Warnings, and the floating-point errors that numpy warns of, raise.

    The filter is put in by hand: catch_warnings would make every module forget what it has warned of already.
    """
    row = ("error", None, Warning, None, 0)
    with numpy.errstate(all="raise"):
        warnings.filters.insert(0, row)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            warnings.filters.remove(row)  # type: ignore[attr-defined]


def is_plain(vm: VM, value: object) -> bool:
    """Whether numpy meets nothing of the program's in a value; what it can reach is exposed."""
    try:
        _plain(vm, value)
    except Break as stop:
        if stop.code == "SB005" or stop.code == "SB003":
            return False
        raise
    return True


def refuse_objects(vm: VM, result: object) -> None:
    """An array of objects is no array of the trace."""
    if type(result) is numpy.ndarray:
        if result.dtype.hasobject or result.dtype.kind == "V":
            raise Break("SB005", "an array of Python objects")
    elif type(result) is tuple or type(result) is list:
        for part in result:
            refuse_objects(vm, part)


def _plain(vm: VM, value: Any) -> Any:
    """The value, once it is certain that numpy meets nothing of the program's in it."""
    cls = type(value)
    if cls in SYMBOLIC:
        return specialise(value, "a number in an array")
    if cls is numpy.ndarray:
        if value.dtype.hasobject:
            raise Break("SB005", "an array of Python objects")
        vm.heap.arrays.expose(value)
        return value
    if cls in _PLAIN or is_a(value, numpy.dtype):
        return value
    if is_a(value, type) and (issubclass(value, numpy.generic) or value in _NUMBERS or value is numpy.ndarray):
        return value
    if cls is slice:
        return slice(*[_plain(vm, part) for part in (value.start, value.stop, value.step)])
    if cls in _CONTAINERS or cls is dict:
        vm.heap.expose(value)
        parts = [_plain(vm, part) for part in (value.values() if cls is dict else value)]
        return value if all(a is b for a, b in zip(parts, value.values() if cls is dict else value, strict=True)) \
            else dict(zip(value, parts, strict=True)) if cls is dict else cls(parts)
    if cls is FakeTensor:
        raise Break("SB003", "a tensor given to numpy")
    raise Break("SB005", f"a {cls.__name__} given to numpy")


_NUMBERS = frozenset({int, float, bool, complex, str, bytes})


def refuse_mixture(left: object, right: object) -> None:
    """An operator between a tensor and an array: numpy reads the tensor."""
    if type(left) is numpy.ndarray or type(right) is numpy.ndarray:
        raise Break("SB003", "an operator between a tensor and an array")


def read_array_attribute(vm: VM, array: object, name: str, descr: Any) -> Any:
    if name in _LAYOUT:
        return descr.__get__(array)
    if name in _VIEWS and concerns(vm, (array,)):
        return read_traced(vm, array, name, descr)
    if name in _VIEWS:
        vm.heap.arrays.expose(array)
        result = descr.__get__(array)
        refuse_objects(vm, result)
        return result
    raise Break("SB005", f"{name} of an array")
