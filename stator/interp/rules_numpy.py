"""Rules for numpy.   values.sum(), np.where(a, b, c), torch.from_numpy(values), x.numpy()

numpy's functions over arrays run while tracing, on stand-ins (`arrays.py`); where a value of another kind is among
the arguments (a tensor, a function), those written in Python are interpreted.
An array that becomes a tensor is an input of the graph; a tensor that becomes an array is rebuilt from the graph's
output, and only its layout is known meanwhile.
"""

from __future__ import annotations

import types
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from stator.breaks import Break
from stator.interp.array_tensors import copied_tensor, shared_tensor
from stator.interp.arrays import is_plain, run_on_arrays
from stator.interp.frame import Raised
from stator.interp.items import get_item
from stator.interp.made_tensors import make_tensor
from stator.interp.rule_registry import rule
from stator.kinds import is_a
from stator.native.rows_numpy import MAKERS, array_callables


def _array_rule(function: Any) -> Any:
    def run(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        vm.give(run_on_arrays(vm, function, tuple(args), kwargs), cont)
    return run


def _dispatched_rule(function: Any) -> Any:
    """One of numpy's functions that other libraries may override for their own arrays: here, nobody does."""
    implementation = getattr(function, "_implementation", function)
    if type(implementation) is not types.FunctionType:
        return _array_rule(function)

    def run(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        if all(is_plain(vm, value) for value in (*args, *kwargs.values())):
            return vm.give(run_on_arrays(vm, function, tuple(args), kwargs), cont)
        vm.push(vm.frame_for(implementation, args, kwargs), cont)
    return run


for _function in array_callables():
    rule(_function)(_dispatched_rule(_function) if hasattr(_function, "_implementation") else _array_rule(_function))


for _name in MAKERS:
    rule(getattr(numpy, _name))(_dispatched_rule(getattr(numpy, _name)))


@rule(numpy.ndarray.__getitem__, arity=(2,))
def _get_item(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    get_item(vm, args[0], args[1], cont)


# ---------------------------------------------------------------------- arrays as tensors


@rule(torch.from_numpy)
def _from_numpy(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) != 1 or kwargs or type(args[0]) is not numpy.ndarray:
        if args and type(args[0]) is FakeTensor or kwargs:
            raise Break("SB003", "torch.from_numpy of something else than an array")
        return vm.give(vm.native_unhooked(torch.from_numpy, args, kwargs), cont)
    vm.give(shared_tensor(vm, args[0]), cont)


def _constructor_rule(function: Any) -> Any:
    def make(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        """torch.tensor, torch.as_tensor, torch.asarray: of an array, of numpy scalars, or of anything else."""
        data = args[0] if args else kwargs.get("data")
        if type(data) is numpy.ndarray:
            return vm.give(_from_array(vm, function, args, kwargs), cont)
        if _holds_scalars(vm, data) and kwargs.get("dtype") is None:
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                kwargs = {**kwargs, "dtype": vm.native_unhooked(function, (data,)).dtype}
        vm.give(make_tensor(vm, function, args, kwargs), cont)
    return make


def _from_array(vm: Any, function: Any, args: Any, kwargs: Any) -> Any:
    rest = {key: value for key, value in kwargs.items() if value is not None and key != "data"}
    unknown = set(rest) - {"dtype", "requires_grad"}
    if len(args) > 1 or unknown or vm.torch_state.devices:
        raise Break("SB005", "an array as a tensor, with more arguments than a dtype")
    dtype = rest.get("dtype")
    if function is torch.tensor:
        made = copied_tensor(vm, args[0] if args else kwargs["data"])
    else:
        made = shared_tensor(vm, args[0])
    if dtype is not None and made.dtype != dtype:
        made = vm.torch_call(torch.Tensor.to, (made, dtype), None)
    if rest.get("requires_grad"):
        raise Break("SB016", "an array as a tensor that requires grad")
    return made


def _holds_scalars(vm: Any, data: Any) -> bool:
    if type(data) is list or type(data) is tuple:
        vm.heap.expose(data)
        return any(_holds_scalars(vm, part) for part in data)
    return is_a(data, numpy.generic)


for _make in (torch.tensor, torch.as_tensor, torch.asarray):
    rule(_make)(_constructor_rule(_make))


# ---------------------------------------------------------------------- tensors as arrays


_DTYPES = {torch.from_numpy(numpy.zeros(0, name)).dtype: numpy.dtype(name) for name in (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "complex64", "complex128")}


@rule(torch.Tensor.numpy)
def _numpy(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    """An array on a tensor's memory: its layout is known, its contents are the graph's."""
    fake = args[0]
    if len(args) != 1 or kwargs.get("force") or type(fake) is not FakeTensor or not all(
            type(extent) is int for extent in (*fake.shape, *fake.stride())):
        raise Break("SB003", "a tensor's values as an array")
    if fake.requires_grad or fake.device.type != "cpu" or fake.is_conj() or fake.is_neg() or vm.heap.by_standin.get(
            id(fake)) is None and not fake.is_contiguous():
        raise Break("SB003", "a tensor's values as an array")
    dtype = _DTYPES.get(fake.dtype)
    if dtype is None:
        raise Raised(TypeError(f"Got unsupported ScalarType {fake.dtype}"))
    itemsize = dtype.itemsize
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(fake.shape, fake.stride(), strict=True)) \
        if fake.numel() else 0
    memory = numpy.zeros(size, dtype)
    array = numpy.ndarray(tuple(fake.shape), dtype, memory, 0, tuple(stride * itemsize for stride in fake.stride()))
    vm.heap.arrays.backed[id(array)] = (array, fake)
    vm.give(array, cont)


