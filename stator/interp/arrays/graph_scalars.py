"""numpy scalars that the graph computes.   s = x.numpy().sum(); s.dtype, float(s), y * s, s if s > 0 else 0

In: a held scalar (`shapes/varying_values`) where the program reads an attribute, calls something with it or asks for
its truth.  Out: numpy's metadata; the tensor of no dimensions behind it, or its number, which is data; a break
elsewhere.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Iterable
from typing import Any

import numpy
import torch

from stator.breaks import Break
from stator.interp.arrays.array_tensors import tensor_of
from stator.interp.arrays.traced_numpy import run_traced
from stator.interp.frame import Continuation
from stator.interp.numbers.symbolic_numbers import item_of
from stator.interp.rule_registry import TAKES_GRAPH_SCALARS
from stator.interp.services import VM
from stator.native.rows_declare import ROWS
from stator.native.table import receiver_split
from stator.native.torch_ops import torch_leaf
from stator.shapes.varying_values import HELD_TYPES

_METADATA = frozenset({"dtype", "ndim", "shape", "size", "itemsize", "nbytes", "strides"})
_CONSTRUCTORS = (torch.tensor, torch.as_tensor, torch.asarray)  # which see the type of a scalar
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)


def load_held_attr(vm: VM, scalar: Any, name: str, cont: Continuation | None) -> None:
    cls = scalar.python_type
    if name in _METADATA:
        return vm.give(getattr(cls(0), name), cont)
    if name in ("real", "imag", "T") and (name == "T" or not issubclass(cls, numpy.complexfloating)):
        return vm.give(scalar, cont) if name != "imag" else vm.give(cls(0), cont)
    method = getattr(cls, name, None)
    if id(method) not in TAKES_GRAPH_SCALARS:
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
    if not any(type(value) in HELD_TYPES or type(value) is numpy.ndarray for value in every):
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
    """A subscript in which scalars of the graph are numbers."""
    if type(key) in HELD_TYPES:
        return number_of(vm, key)
    if type(key) is slice:
        parts = key.start, key.stop, key.step
        return slice(*[_number(vm, part) for part in parts]) if any(type(p) in HELD_TYPES for p in parts) else key
    if type(key) is tuple and any(type(part) in HELD_TYPES or type(part) is slice for part in key):
        return tuple(plain_key(vm, part) for part in key)
    return key


def with_numbers(vm: VM, values: Iterable[Any]) -> tuple[Any, ...]:
    """Arguments of a torch call in which scalars of the graph are numbers, also inside lists."""
    return tuple(_number(vm, value) for value in values)


def _number(vm: VM, value: Any) -> Any:
    if type(value) in (list, tuple) and any(type(part) in HELD_TYPES for part in value):
        return type(value)(_number(vm, part) for part in value)
    return number_of(vm, value) if type(value) in HELD_TYPES else value


def one_number(vm: VM, value: Any) -> Any:
    """The tensor behind a scalar, or behind an array of one element."""
    if type(value) in HELD_TYPES:
        return value.tensor
    if type(value) is numpy.ndarray and vm.heap.arrays.is_backed(value) and value.ndim == 0:
        return tensor_of(vm, value)
    return value


def items_of(vm: VM, array: numpy.ndarray) -> list[Any]:
    """What iteration over an array gives."""
    return [run_traced(vm, operator.getitem, (array, i)) for i in range(len(array))]


def value_behind(vm: VM, value: Any) -> Any:
    """The tensor that is the contents of an array or scalar."""
    return value.tensor if type(value) in HELD_TYPES else tensor_of(vm, value)
