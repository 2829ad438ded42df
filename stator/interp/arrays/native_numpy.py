"""numpy on values of the trace: C code on stand-ins of arrays, and scalars that the graph computes.

    values[1] + 2                                    ->  run by numpy, on the memory of the stand-in
    s = x.numpy().sum(); s.dtype, float(s), y * s    ->  numpy's metadata; the tensor behind the scalar, or its number

numpy sees arrays, numbers, dtypes, slices and containers of these.  A floating-point error of which it warns breaks.
"""

from __future__ import annotations

import contextlib
import operator
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.heap.adopt.outside_arrays import SCALARS
from stator.heap.raw_access import CONSTANT_TYPES
from stator.host.value_kinds import is_a
from stator.interp.arrays.array_tensors import tensor_of
from stator.interp.arrays.traced_numpy import concerns, has_form, read_traced, run_traced
from stator.interp.frame import Continuation, Raised
from stator.interp.numbers.symbolic_numbers import item_of
from stator.interp.rule_registry import TAKES_GRAPH_SCALARS
from stator.interp.services import VM
from stator.native.rows_declare import ROWS
from stator.native.table import receiver_split
from stator.native.torch_ops import torch_leaf
from stator.shapes.symbolic_values import GRAPH_SCALARS, SYMBOLIC, specialise

_LAYOUT = frozenset({"shape", "ndim", "size", "dtype", "itemsize", "nbytes", "strides", "device"})
_VIEWS = frozenset({"T", "mT", "real", "imag"})
_PLAIN = SCALARS | CONSTANT_TYPES | {numpy.ndarray, numpy.ufunc, types.BuiltinFunctionType, type(numpy._NoValue)}
_CONTAINERS = (tuple, list, set, frozenset, torch.Size)
_NUMBERS = frozenset({int, float, bool, complex, str, bytes})
_METADATA = frozenset({"dtype", "ndim", "shape", "size", "itemsize", "nbytes", "strides"})
_CONSTRUCTORS = (torch.tensor, torch.as_tensor, torch.asarray)  # which see the type of a scalar
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)


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
    """Raise warnings and numpy's floating-point errors; catch_warnings would reset the registries of all modules."""
    row = ("error", None, Warning, None, 0)
    with numpy.errstate(all="raise"):
        warnings.filters.insert(0, row)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            warnings.filters.remove(row)  # type: ignore[attr-defined]


def is_plain(vm: VM, value: object) -> bool:
    """Whether numpy meets no object of the program in a value; what it can reach is exposed."""
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
    """The value, once it is certain that numpy meets no object of the program in it."""
    cls = type(value)
    if cls in SYMBOLIC:
        return specialise(value, "a number in an array")
    if cls is numpy.ndarray:
        if value.dtype.hasobject:
            raise Break("SB005", "an array of Python objects")
        vm.heap.arrays.expose(value)
        return value
    if cls in _PLAIN or is_a(value, numpy.dtype) or is_a(value, type) and (
            issubclass(value, numpy.generic) or value in _NUMBERS or value is numpy.ndarray):
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


def load_held_attr(vm: VM, scalar: Any, name: str, cont: Continuation | None) -> None:
    cls = scalar.python_type
    if name in _METADATA:
        return vm.give(getattr(cls(0), name), cont)
    if name in ("real", "imag", "T") and (name == "T" or not issubclass(cls, numpy.complexfloating)):
        return vm.give(scalar, cont) if name != "imag" else vm.give(cls(0), cont)
    method = getattr(cls, name, None)
    if method is None or id(method) not in TAKES_GRAPH_SCALARS:
        raise Break("SB003", f"{name} of a numpy.{cls.__name__} that is unbacked")
    vm.give(types.MethodType(method, scalar), cont)


def number_of(vm: VM, scalar: Any) -> Any:
    """The Python number of a scalar, as torch takes it for one."""
    if scalar.python_type is numpy.bool_ or issubclass(scalar.python_type, numpy.complexfloating):
        raise Break("SB003", f"a numpy.{scalar.python_type.__name__} that is unbacked, given to torch")
    return item_of(vm, scalar.tensor)


def prepared(vm: VM, fn: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a call, where torch or Python wants numbers and the program has scalars of the graph."""
    every = (*args, *kwargs.values()) if kwargs else args
    if not any(type(value) in GRAPH_SCALARS or type(value) is numpy.ndarray for value in every):
        return args, kwargs
    if len(args) == 1 and not kwargs and (row := ROWS.get(id(fn))) is not None and row.makes_number:
        return (one_number(vm, args[0]),), kwargs
    if fn in _CONSTRUCTORS:
        return args, kwargs
    if fn is range or torch_leaf(receiver_split(fn)[0] if type(fn) in _BOUND else fn):
        return tuple(_number(vm, value) for value in args), kwargs and {
            key: _number(vm, value) for key, value in kwargs.items()}
    return args, kwargs


def plain_key(vm: VM, key: object) -> Any:
    if type(key) in GRAPH_SCALARS:
        return number_of(vm, key)
    if type(key) is slice:
        parts = key.start, key.stop, key.step
        return slice(*[_number(vm, part) for part in parts]) if any(type(p) in GRAPH_SCALARS for p in parts) else key
    if type(key) is tuple and any(type(part) in GRAPH_SCALARS or type(part) is slice for part in key):
        return tuple(plain_key(vm, part) for part in key)
    return key


def with_numbers(vm: VM, values: Iterable[Any]) -> tuple[Any, ...]:
    """Arguments of a torch call in which scalars of the graph are numbers, also inside lists."""
    return tuple(_number(vm, value) for value in values)


def _number(vm: VM, value: Any) -> Any:
    if type(value) in (list, tuple) and any(type(part) in GRAPH_SCALARS for part in value):
        return type(value)(_number(vm, part) for part in value)
    return number_of(vm, value) if type(value) in GRAPH_SCALARS else value


def one_number(vm: VM, value: Any) -> Any:
    """The tensor behind a scalar, or behind an array of one element."""
    if type(value) in GRAPH_SCALARS:
        return value.tensor
    if type(value) is numpy.ndarray and vm.heap.arrays.is_backed(value) and value.ndim == 0:
        return tensor_of(vm, value)
    return value


def items_of(vm: VM, array: numpy.ndarray) -> list[Any]:
    return [run_traced(vm, operator.getitem, (array, i)) for i in range(len(array))]


def value_behind(vm: VM, value: Any) -> Any:
    return value.tensor if type(value) in GRAPH_SCALARS else tensor_of(vm, value)
