"""Rules for numpy.   values.sum(), np.where(a, b, c), torch.from_numpy(values), x.numpy()

Functions over arrays run while tracing, on stand-ins; with a tensor or a function among the arguments, those written in
Python are interpreted.  An array that becomes a tensor is a graph input; a tensor that becomes an array, an output.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from stator.breaks import Break, Strategy
from stator.graph.metadata.propagation import ExactNeeded
from stator.host.value_kinds import is_a
from stator.interp.arrays import array_tensors
from stator.interp.arrays.native_numpy import is_plain, run_on_arrays, value_behind
from stator.interp.arrays.traced_numpy import concerns, has_form, run_traced
from stator.interp.frame import Continuation, Raised
from stator.interp.noted_effects import Converted, list_arrays, note_warning
from stator.interp.objects.items import get_item
from stator.interp.rule_registry import LISTED, rule, suspending_rule
from stator.interp.tensors.tensor_items import make_tensor
from stator.interp.torch_function_protocol import refuse_patched
from stator.interp.vm import VM
from stator.native.rows_packages import MAKERS, array_callables
from stator.shapes.symbolic_values import GRAPH_SCALAR_OF, GRAPH_SCALARS, specialise

# They ask their arguments for arrays, and give arrays whatever their arguments were (ufuncs do not).
_CONVERTERS = frozenset(map(id, (numpy.array, numpy.asarray, numpy.asanyarray, numpy.ascontiguousarray,
                                 numpy.asfortranarray, numpy.zeros_like, numpy.ones_like, numpy.full_like)))
_ARRAY_CALLABLES = array_callables()
_MAKERS = [getattr(numpy, name) for name in MAKERS]
Data = Any  # a number, a tensor, or nested lists and tuples of them
_OF_NUMBERS = {bool: torch.bool, int: torch.int64, float: None}  # dtypes in torch.tensor; None: the default dtype
_EXACT = 2 ** 24  # up to which integers are the same in float32, however they are converted


def implementation_of(function: object) -> types.FunctionType | None:
    """The Python code of a numpy function that other libraries may override; None where it is C code."""
    inner = getattr(function, "_implementation", function)
    return inner if type(inner) is types.FunctionType else None


def is_dispatched(function: object) -> bool:
    return hasattr(function, "_implementation") and implementation_of(function) is not None


@rule(*[each for each in _ARRAY_CALLABLES if not is_dispatched(each)], graph_scalars=True)
def _run(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    if id(callee) in _CONVERTERS or type(callee) is type(numpy.concatenate):
        args = tuple([_with_arrays(vm, value) for value in args])
    return run_on_arrays(vm, callee, args, kwargs)


def _holds_tensors(values: Iterable[Any]) -> bool:
    """Whether a tensor is among the arguments: numpy's own code is interpreted."""
    return any(type(value) is FakeTensor or type(value) in (list, tuple) and _holds_tensors(value) for value in values)


def _with_arrays(vm: VM, value: object) -> Any:
    """An argument as numpy reads it: a tensor by its `__array__`, also in a list."""
    if type(value) is FakeTensor:
        refuse_patched(vm, "__array__")
        return array_of(vm, value)
    if type(value) is list or type(value) is tuple:
        vm.heap.expose(value)
        if any(type(part) is FakeTensor for part in value):
            return type(value)([_with_arrays(vm, part) for part in value])
    return value


@suspending_rule(*[each for each in _ARRAY_CALLABLES if is_dispatched(each)], graph_scalars=True)
def _run_dispatched(vm: VM, cont: Any, callee: Any, /, *args: Any, **kwargs: Any) -> None:
    """A numpy function that other libraries may override for their own arrays: here, nobody does."""
    if id(callee) in _CONVERTERS:
        args = tuple([_with_arrays(vm, value) for value in args])
    if has_form(callee, args) and concerns(vm, (*args, *kwargs.values())) and not _holds_tensors(args):
        return vm.give(run_traced(vm, callee, args, kwargs), cont)
    if all(is_plain(vm, value) for value in (*args, *kwargs.values())):
        return vm.give(run_on_arrays(vm, callee, args, kwargs), cont)
    vm.push(vm.frame_for(getattr(callee, "_implementation", callee), args, kwargs), cont)


rule(*[each for each in _MAKERS if implementation_of(each) is None])(_run)
suspending_rule(*[each for each in _MAKERS if implementation_of(each) is not None])(_run_dispatched)


@rule(*array_tensors.SCALAR_METHODS, graph_scalars=True)
def _call_of_scalar(vm: VM, callee: object, /, *args: object, **kwargs: object) -> Any:
    """A method of a scalar: of one that the graph holds, or of a constant."""
    return run_traced(vm, callee, args, kwargs) if args and type(args[0]) in GRAPH_SCALARS else LISTED


@suspending_rule(numpy.ndarray.item, numpy.ndarray.tolist, numpy.generic.item, numpy.generic.tolist, graph_scalars=True)
def _numbers_of(vm: VM, cont: Any, callee: Any, array: Any, /, *args: Any, **kwargs: Any) -> None:
    """item(), tolist(): Python numbers, which are data of the graph where the array is."""
    if args or kwargs or not concerns(vm, (array,)):
        if type(array) is numpy.ndarray:
            return vm.give(run_on_arrays(vm, callee, (array, *args), kwargs), cont)
        return vm.call_listed(callee, callee, None, (array, *args), kwargs, cont)
    if not vm.heap.trace_numpy:
        raise Break("SB003", "the contents of an array that is the memory of a tensor")
    method = torch.Tensor.item if callee.__name__ == "item" else torch.Tensor.tolist
    vm.call(method, (value_behind(vm, array),), {}, cont)


@rule(*GRAPH_SCALAR_OF, graph_scalars=True)
def _convert(vm: VM, callee: object, /, *args: object, **kwargs: object) -> Any:
    """np.float32(s)"""
    if len(args) == 1 and not kwargs and type(args[0]) in GRAPH_SCALARS:
        return run_traced(vm, numpy.generic.astype, (args[0], callee))
    return LISTED


rule(abs, graph_scalars=True)(lambda vm, value, /: run_traced(vm, abs, (value,)) if concerns(vm, (value,)) else LISTED)


@suspending_rule(numpy.ndarray.__getitem__)
def _get_item(vm: VM, cont: Continuation | None, callee: object, array: object, key: object, /) -> None:
    if type(array) is not numpy.ndarray:  # a subclass may have a method of its own, which calls this one
        return vm.call_listed(callee, callee, None, (array, key), {}, cont)
    get_item(vm, array, key, cont)


@rule(torch.from_numpy)
def _from_numpy(vm: VM, /, *args: object, **kwargs: object) -> Any:
    if len(args) != 1 or kwargs or type(args[0]) is not numpy.ndarray:
        if args and type(args[0]) is FakeTensor or kwargs:
            raise Break("SB003", "torch.from_numpy of something else than an array")
        return vm.native_unhooked(torch.from_numpy, args, kwargs)
    return array_tensors.shared_tensor(vm, args[0])


@rule(torch.tensor, torch.as_tensor, torch.asarray, graph_scalars=True)
def _make(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    """torch.tensor, torch.as_tensor, torch.asarray: of an array, of numpy scalars, or of anything else."""
    data = args[0] if args else kwargs.get("data")
    if type(data) is numpy.ndarray:
        return array_tensors.from_array(vm, callee, args, kwargs)
    if (held := _held(vm, data)) is not None:
        return array_tensors.from_copy(vm, held, args, kwargs)
    if callee is not torch.asarray and (held := _stacked(vm, data, kwargs.get("dtype"))) is not None:
        return array_tensors.from_copy(vm, held, args, kwargs)
    if _holds_scalars(vm, data) and kwargs.get("dtype") is None:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            kwargs = {**kwargs, "dtype": vm.native_unhooked(callee, (data,)).dtype}
    return make_tensor(vm, callee, args, kwargs)


def _held(vm: VM, data: Data) -> Any:
    """A new tensor of a scalar of the graph or a list of them, or of a list of arrays; None where there is neither."""
    if type(data) in GRAPH_SCALARS:
        return vm.torch_call(torch.clone, (data.tensor,), None)
    if type(data) is numpy.ndarray and data.size and data.ndim:
        return array_tensors.copied_tensor(vm, data)
    if type(data) is not list and type(data) is not tuple:
        return None
    vm.heap.expose(data)
    parts = [_held(vm, part) for part in data]
    if all(part is None for part in parts):
        return None
    if any(part is None for part in parts) or len({(part.dtype, part.shape) for part in parts}) > 1:
        raise Break("SB003", "a tensor of numbers of which only some are the graph's")
    if any(type(part) is numpy.ndarray for part in data):
        note_warning(vm, list_arrays, UserWarning, kind=Converted)
    return vm.torch_call(torch.stack, (parts,), None)


def _stacked(vm: VM, data: Data, dtype: object) -> FakeTensor | None:
    """The tensor of nested lists of numbers and of tensors with one item, side by side; None where torch has a rule."""
    leaves = list(_leaves(vm, data)) if type(data) is list or type(data) is tuple else []
    tensors = [leaf for leaf in leaves if type(leaf) is FakeTensor]
    if not tensors or not all(type(leaf) is FakeTensor or type(leaf) in _OF_NUMBERS for leaf in leaves):
        return None
    own = tensors[0].dtype
    known = not own.is_floating_point and not any(leaf.dim() for leaf in tensors)  # numbers that a symbol stands for
    if known or not all(map(_is_plain_item, tensors)) or any(leaf.dtype is not own for leaf in tensors) \
            or dtype not in (None, own, torch.float64):
        return None
    numbers = [leaf for leaf in leaves if type(leaf) in _OF_NUMBERS]
    wide = [_OF_NUMBERS[type(number)] or torch.get_default_dtype() for number in numbers]
    if any(torch.promote_types(own, each) is not own for each in wide) or any(
            type(number) is int and abs(number) > _EXACT for number in numbers):
        return None
    return _side_by_side(vm, data, own)


def _leaves(vm: VM, data: Data) -> Iterator[Data]:
    if type(data) is list or type(data) is tuple:
        vm.heap.expose(data)
        for part in data:
            yield from _leaves(vm, part)
    else:
        yield data


def _is_plain_item(leaf: FakeTensor) -> bool:
    return type(leaf.numel()) is int and leaf.numel() == 1 and not leaf.requires_grad and leaf.device.type == "cpu" \
        and leaf.layout is torch.strided and not leaf.is_conj() and not leaf.is_neg()


def _side_by_side(vm: VM, data: Data, dtype: torch.dtype) -> FakeTensor:
    if type(data) is FakeTensor:
        return vm.torch_call(torch.reshape, (data, ()), None) if data.dim() else data
    if type(data) in _OF_NUMBERS:
        return vm.torch_call(torch.full, ((), data), {"dtype": dtype})
    parts = [_side_by_side(vm, part, dtype) for part in data]
    if not parts or len({part.shape for part in parts}) > 1:
        raise Break("SB003", "a tensor of lists of several lengths")
    return vm.torch_call(torch.stack, (parts,), None)


def _holds_scalars(vm: VM, data: object) -> bool:
    if type(data) is list or type(data) is tuple:
        vm.heap.expose(data)
        return any(_holds_scalars(vm, part) for part in data)
    return is_a(data, numpy.generic)


@rule(torch.Tensor.numpy)
def _numpy(vm: VM, tensor: object, /, *, force: object = False) -> Any:
    if force or type(tensor) is not FakeTensor:
        raise Break("SB003", "a tensor's values as an array")
    return array_of(vm, tensor)


def array_of(vm: VM, fake: Any) -> Any:
    """An array on a tensor's memory: its layout is known, its contents are the graph's."""
    vm.recorder.refuse_tangents("a tensor as an array")
    if not all(type(extent) is int for extent in (*fake.shape, *fake.stride())):
        if vm.heap.shapes.breaks or not fake.is_contiguous():
            raise Break("SB003", "a tensor's values as an array")
        fake = vm.torch_call(torch.Tensor.view, (fake, tuple(map(specialise, fake.shape))), None)
    if fake.requires_grad or fake.device.type != "cpu" or fake.is_conj() or fake.is_neg() or vm.heap.by_standin.get(
            id(fake)) is None and not fake.is_contiguous():
        raise Break("SB003", "a tensor's values as an array")
    if fake.dtype not in array_tensors.NUMPY_DTYPES:
        raise Raised(TypeError(f"Got unsupported ScalarType {fake.dtype}"))
    if Strategy.FIXED_STORAGES in vm.turned_off:
        raise Break("SB003", "an array on the memory of a tensor that is resized")
    if vm.recorder.propagation.memory_behind(fake) != fake.untyped_storage()._cdata:
        raise ExactNeeded
    vm.recorder.log.fix(fake)
    return array_tensors.new_array(vm, array_tensors.own_face(vm, fake))
