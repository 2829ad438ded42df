"""numpy on the memory of tensors, as part of the graph.   np.sin(x.numpy())  ->  torch.sin(x), an array again

numpy runs on the stand-ins, and decides the type, shape and base of the result, and what it refuses.  torch computes
the values (`array_tensors`); a form that does not come to the same type and shape is a break.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy
import torch
import torch._numpy as forms
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from stator.breaks import Break
from stator.graph.analysis.mutation import storage_of
from stator.heap.adopt.outside_arrays import SCALARS
from stator.heap.raw_access import CONSTANT_TYPES
from stator.host.value_kinds import is_a
from stator.interp.arrays import array_tensors
from stator.interp.arrays.array_tensors import feed, new_array, refill, tensor_of, torch_dtype
from stator.interp.frame import Raised
from stator.interp.numbers.symbolic_numbers import item_of
from stator.interp.services import VM
from stator.interp.tensors.tensor_items import get_tensor_item, set_tensor_item
from stator.shapes.symbolic_values import GRAPH_SCALAR_OF, GRAPH_SCALARS, SYMBOLIC, is_unbacked, specialise

_CLASSES = frozenset({int, float, bool, complex})
_CONTAINERS = (tuple, list)
_NO_VALUE = numpy._NoValue
NUMPY_TYPES = GRAPH_SCALARS | {numpy.ndarray}
_MAKERS = (torch.as_tensor, torch.tensor, torch.asarray)
_FACTORIES = (torch.zeros, torch.ones, torch.empty, torch.linspace, torch.logspace, torch.eye)
_FROM_PARTS = (numpy.array, numpy.asarray, numpy.asanyarray)
_EXACT_NUMBERS = frozenset({torch.float32, torch.float64, torch.int64, torch.int32})
_ITEMS = (operator.getitem, operator.setitem)


def concerns(vm: VM, values: Iterable[Any], feeding: bool = True) -> bool:
    """Whether an array or scalar that the graph holds is among the values; arrays that change become inputs of it."""
    found = False
    for value in values:
        cls = type(value)
        if cls is numpy.ndarray:
            if feeding:
                feed(vm, value)
            found = found or vm.heap.arrays.is_backed(value)
        elif cls in GRAPH_SCALARS:
            found = True
        elif cls in _CONTAINERS:
            vm.heap.expose(value)
            found = concerns(vm, value, feeding) or found
    return found


def has_form(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    key = id(function)
    if key in array_tensors.UFUNCS or key in array_tensors.FUNCTIONS or key in array_tensors.SLOTS \
            or key in array_tensors.REFLECTED or key in array_tensors.METADATA:
        return True
    if function is numpy.ufunc.reduce:
        return id(args[0]) in array_tensors.REDUCTIONS
    try:
        return function in array_tensors.OPERATORS or function in array_tensors.IN_PLACE or function in _ITEMS
    except TypeError:
        return False


def run_traced(vm: VM, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    """One call, on stand-ins and in the graph."""
    name = getattr(function, "__name__", "numpy")
    if not vm.heap.trace_numpy or not has_form(function, args):
        raise Break("SB003", f"{name} of an array that is the memory of a tensor")
    if vm.modes.active or vm.recorder.scope.enclosing is not None \
            and function in (operator.setitem, *array_tensors.IN_PLACE):
        raise Break("SB005", f"{name} of an array while something sees every operation")
    vm.recorder.propagation.require_exact()
    kwargs = {key: value for key, value in (kwargs or {}).items() if value is not _NO_VALUE}
    shown = [_shown(vm, value) for value in args]
    outcome = ask_numpy(function, shown, {key: _shown(vm, value) for key, value in kwargs.items()})
    if id(function) in array_tensors.METADATA:
        return outcome
    computed = in_graph(lambda: _compute(vm, function, args, kwargs), name)
    written = _written(function, args, kwargs)
    for array in written:
        refill(vm.heap.arrays.root_of(array))
    return _answer(vm, outcome, computed, name, [value for value in pytree.tree_leaves((shown, list(kwargs.values())))
                                                 if type(value) is numpy.ndarray])


def read_traced(vm: VM, array: Any, name: str, descr: Any) -> Any:
    """array.T, array.real"""
    vm.recorder.propagation.require_exact()
    if not vm.heap.trace_numpy or vm.modes.active:
        raise Break("SB003", f"{name} of an array that is the memory of a tensor")
    wrap = forms.ndarray if name != "mT" else lambda tensor: tensor
    computed = in_graph(lambda: getattr(wrap(tensor_of(vm, array)), name), name)
    return _answer(vm, descr.__get__(array), computed, name, [])


def _shown(vm: VM, value: Any) -> Any:
    """An argument as numpy sees it: stand-ins, and constants."""
    cls = type(value)
    if cls in GRAPH_SCALARS:
        return cls.python_type(1 if issubclass(cls.python_type, numpy.inexact) else 0)
    if cls is torch.SymFloat:
        return 1.0
    if cls in SYMBOLIC:
        return specialise(value, "a number in an array")
    if cls is numpy.ndarray:
        if value.dtype.kind not in "biufc":
            raise Break("SB005", f"an array of {value.dtype} beside the memory of a tensor")
        return value
    if cls in SCALARS or cls in CONSTANT_TYPES or cls is numpy.ufunc or is_a(value, numpy.dtype) \
            or is_a(value, type) and (issubclass(value, numpy.generic) or value in _CLASSES):
        return value
    if cls is slice:
        return slice(*[_shown(vm, part) for part in (value.start, value.stop, value.step)])
    if cls in _CONTAINERS or cls is torch.Size:
        vm.heap.expose(value)
        return (list if cls is list else tuple)(_shown(vm, part) for part in value)
    if cls is FakeTensor:
        raise Break("SB003", "a tensor given to numpy")
    raise Break("SB005", f"a {cls.__name__} given to numpy")


def ask_numpy(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """numpy's own answer, of which only the form counts; what it says against the call, eager says best."""
    row = ("error", None, Warning, None, 0)
    warnings.filters.insert(0, row)  # type: ignore[attr-defined]
    try:
        with numpy.errstate(all="ignore"):
            return function(*args, **kwargs)
    except Warning as warning:
        raise Break("SB015", f"numpy warns: {warning}") from None
    except Exception as error:
        raise Break("SB003", f"{getattr(function, '__name__', 'numpy')} of an array that is the memory of a tensor: "
                             f"{error}") from None
    finally:
        warnings.filters.remove(row)  # type: ignore[attr-defined]


def _written(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    function = array_tensors.SLOTS.get(id(function), function)
    if id(function) in array_tensors.WRITES or function is operator.setitem or function in array_tensors.IN_PLACE:
        found = [args[0]]
    else:
        out = kwargs.get("out")
        found = [*(out if type(out) is tuple else (out,))]
        if type(function) is numpy.ufunc:
            found += args[function.nin:]
    return [value for value in found if type(value) is numpy.ndarray]


class ExplicitTypes(TorchFunctionMode):
    """torch._numpy makes tensors of numbers under a default type of its own: the graph says which type that is."""

    def __torch_function__(self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _MAKERS and kwargs.get("dtype") is None and args and not is_a(args[0], torch.Tensor):
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                dtype = torch.as_tensor(args[0]).dtype
            return torch.tensor(args[0], dtype=dtype)
        if func in _FACTORIES and kwargs.get("dtype") is None:
            kwargs = {**kwargs, "dtype": torch.get_default_dtype()}
        return func(*args, **kwargs)


def in_graph(compute: Any, name: str) -> Any:
    """Run torch's form natively: what it does to tensors is recorded."""
    try:
        with ExplicitTypes():
            return compute()
    except Raised as raised:
        error: BaseException = raised.exc
    except Exception as failure:
        error = failure
    text = str(error).split("\n")[0]
    raise Break("SB003", f"{name} of an array that is the memory of a tensor, which torch cannot do: {text}") from None


def _compute(vm: VM, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if id(function) in array_tensors.REFLECTED:
        function, args = array_tensors.REFLECTED[id(function)], (args[1], args[0])
    function = array_tensors.SLOTS.get(id(function), function)
    if function is operator.getitem:
        return _get_item(vm, args[0], args[1])
    if function is operator.setitem:
        return _set_item(vm, *args)
    if type(function) is not numpy.ufunc and function in array_tensors.IN_PLACE:
        ufunc = array_tensors.OPERATORS[array_tensors.IN_PLACE[function]]
        kwargs = {"out": args[0]} if type(args[0]) is numpy.ndarray else {}
        return _apply_ufunc(vm, ufunc, args, kwargs)
    if type(function) is not numpy.ufunc and id(function) not in array_tensors.FUNCTIONS \
            and function in array_tensors.OPERATORS:
        function = array_tensors.OPERATORS[function]
    if type(function) is numpy.ufunc:
        return _apply_ufunc(vm, function, args, kwargs)
    if function is numpy.ufunc.reduce:
        return _reduce(vm, *args, **kwargs)
    writes = id(function) in array_tensors.WRITES
    given = [_given(vm, value, writes and not i) for i, value in enumerate(args)]
    if writes:
        given[1:] = [forms.ndarray(_apart(value.tensor, given[0].tensor)) if type(value) is forms.ndarray else value
                     for value in given[1:]]
    named = {key: _dtype(value) if key == "dtype" else _given(vm, value, key == "out") for key, value in kwargs.items()}
    if function is numpy.ndarray.astype or function is numpy.generic.astype:
        given[1:2] = [_dtype(value) for value in args[1:2]]
        if named.pop("copy", True) is not True:
            raise Break("SB003", "astype(copy=False) of an array that is the memory of a tensor")
    if function in _FROM_PARTS and type(args[0]) in _CONTAINERS:
        given[0] = _stacked(vm, args[0])
    if function is numpy.asanyarray:
        function = numpy.asarray
    return array_tensors.FUNCTIONS[id(function)](*given, **named)


def _stacked(vm: VM, parts: Sequence[Any]) -> Any:
    """np.array([a, b]): all of them arrays, or scalars, of one type."""
    tensors = [_tensor(vm, part) for part in parts if type(part) is numpy.ndarray or type(part) in GRAPH_SCALARS]
    if len(tensors) != len(parts) or len({tensor.dtype for tensor in tensors}) != 1:
        raise Break("SB003", "an array of values of which only some are the memory of tensors")
    return forms.ndarray(torch.stack(tensors))


def _tensor(vm: VM, value: Any, writes: bool = False) -> Any:
    return value.tensor if type(value) in GRAPH_SCALARS else tensor_of(vm, value, writes)


def _given(vm: VM, value: Any, writes: bool = False) -> Any:
    """An argument as torch._numpy takes it."""
    cls = type(value)
    if cls is numpy.ndarray or cls in GRAPH_SCALARS:
        return forms.ndarray(_tensor(vm, value, writes))
    if cls in SCALARS:
        return forms.ndarray(torch.tensor(value.item(), dtype=torch_dtype(value.dtype)))
    if cls in SYMBOLIC:
        return specialise(value, "a number in an array")
    if is_a(value, numpy.dtype) or is_a(value, type):
        return _dtype(value)
    if cls is slice:
        return slice(*[_given(vm, part) for part in (value.start, value.stop, value.step)])
    if cls in _CONTAINERS or cls is torch.Size:
        return (list if cls is list else tuple)(_given(vm, part) for part in value)
    return value


def _dtype(value: Any) -> Any:
    if value is None:
        return None
    name = numpy.dtype(value).name
    torch_dtype(numpy.dtype(value))
    return forms.dtype(name)


def _reduce(vm: VM, ufunc: object, array: numpy.ndarray, axis: object = 0, dtype: object = None,
            out: object = None, keepdims: object = False, **rest: object) -> Any:
    if rest:
        raise Break("SB003", "a reduction with an initial value, or where")
    named = {} if dtype is None else {"dtype": _dtype(dtype)}
    if out is not None:
        named["out"] = _given(vm, out[0] if type(out) is tuple else out, True)
    return array_tensors.REDUCTIONS[id(ufunc)](_given(vm, array), axis=axis, keepdims=keepdims, **named)


def _apply_ufunc(vm: VM, ufunc: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operands in the types of numpy's loop, then torch's function."""
    inputs, outs = args[:ufunc.nin], args[ufunc.nin:]
    if "out" in kwargs:
        outs = kwargs["out"] if type(kwargs["out"]) is tuple else (kwargs["out"],)
    if set(kwargs) - {"out", "dtype"} or ufunc.nout != 1 or len(outs) > 1:
        raise Break("SB003", f"{ufunc.__name__} with {', '.join(kwargs)}")
    out = outs[0] if outs else None
    wanted = {} if kwargs.get("dtype") is None else {"signature": (*[None] * ufunc.nin, numpy.dtype(kwargs["dtype"]))}
    types = ufunc.resolve_dtypes((*map(_operand_type, inputs), None if out is None else out.dtype), **wanted)
    _refuse_differing(ufunc, inputs, types)
    operands = [_operand(vm, ufunc, value, types[i], i) for i, value in enumerate(inputs)]
    result = array_tensors.UFUNCS[id(ufunc)](*operands)
    if result.dtype != torch_dtype(types[-1]):
        raise Break("SB003", f"{ufunc.__name__} of {types[0]}, which torch does in {result.dtype}")
    if out is None:
        return result
    target = _tensor(vm, out, True)
    return target.copy_(_apart(result.to(target.dtype), target))


def _apart(given: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A copy of values that lie in the memory to be written: numpy allows any overlap, torch does not."""
    return given.clone() if storage_of(given) == storage_of(target) else given


def _operand_type(value: object) -> Any:
    cls = type(value)
    if cls in GRAPH_SCALARS:
        return numpy.dtype(cls.python_type)
    if cls is torch.SymFloat:
        return float
    if cls is torch.SymInt:
        return int
    return cls if cls in (int, float, complex) else numpy.asarray(value).dtype


def _refuse_differing(ufunc: Any, inputs: Sequence[Any], types: Any) -> None:
    kinds = {dtype.kind for dtype in types[:-1]}
    if "c" in kinds and id(ufunc) in array_tensors.NOT_COMPLEX:
        raise Break("SB003", f"{ufunc.__name__} of complex numbers")
    if kinds <= set("biu") and id(ufunc) in array_tensors.DIVIDES and not (type(inputs[1]) is int and inputs[1] > 0):
        raise Break("SB003", f"{ufunc.__name__} of integers by an unbacked number")


def _operand(vm: VM, ufunc: Any, value: Any, dtype: numpy.dtype, place: int) -> Any:
    target = torch_dtype(dtype)
    cls = type(value)
    if cls is torch.SymFloat or cls is torch.SymInt:
        if place != 1 or id(ufunc) not in array_tensors.TAKES_NUMBERS:
            raise Break("SB003", f"{ufunc.__name__} of an unbacked number")
        return value
    if cls in (int, float, bool, complex) or cls in SCALARS:
        number = value if cls in CONSTANT_TYPES else value.item()
        if place == 1 and id(ufunc) in array_tensors.TAKES_NUMBERS and target in _EXACT_NUMBERS:
            return dtype.type(number).item()
        return torch.tensor(dtype.type(number).item(), dtype=target)
    if cls not in _CONTAINERS:
        tensor = _tensor(vm, value)
    elif concerns(vm, value):
        tensor = _stacked(vm, value).tensor
    else:
        tensor = torch.tensor(numpy.asarray(value).tolist(), dtype=target)
    return tensor if tensor.dtype == target else tensor.to(target)


def _is_basic(key: object) -> bool:
    parts = key if type(key) is tuple else (key,)
    return all(type(part) in (int, slice, type(None), type(...)) for part in parts)


def _is_mask(value: Any) -> bool:
    return type(value) is bool or type(value) in GRAPH_SCALARS and value.python_type is numpy.bool_ \
        or type(value) is numpy.ndarray and value.dtype == bool or type(value) is numpy.bool_ \
        or type(value) is list and numpy.asarray(value).dtype == bool


def _get_item(vm: VM, array: numpy.ndarray, key: object) -> Any:
    parts = key if type(key) is tuple else (key,)
    if any(map(_is_mask, parts)):
        raise Break("SB004", "a mask as the index of an array that is the memory of a tensor")
    if any(type(part) in GRAPH_SCALARS for part in parts) and all(
            type(part) in GRAPH_SCALARS or _is_basic(part) for part in parts):
        if len(parts) != array.ndim or any(type(part) not in (int, *GRAPH_SCALARS) for part in parts):
            raise Break("SB003", "a view of an array, at an unbacked index")
        parts = tuple(item_of(vm, part.tensor) if type(part) in GRAPH_SCALARS else part for part in parts)
        return get_tensor_item(vm, _tensor(vm, array), parts)
    if _is_basic(key):
        taken, turned = _forward_slices(parts, _tensor(vm, array))
        return torch.flip(taken, turned) if turned else taken
    return forms.ndarray.__getitem__(_given(vm, array), _given(vm, key))


def _forward_slices(parts: tuple[Any, ...], tensor: torch.Tensor) -> tuple[Any, list[int]]:
    """tensor[parts] where torch has no steps backwards, and the dimensions that are still to be turned round."""
    missing = tensor.dim() - sum(part is not None and part is not ... for part in parts)
    if ... not in parts:
        parts = (*parts, ...)
    key: list[Any] = []
    turned: list[int] = []
    at = to = 0
    for part in parts:
        if part is ...:
            key += [slice(None)] * missing
            at, to = at + missing, to + missing
            continue
        if type(part) is slice and type(part.step) is int and part.step < 0:
            reached = range(*part.indices(tensor.shape[at]))
            turned.append(to)
            part = slice(reached[-1], reached[0] + 1, -part.step) if reached else slice(0, 0)
        key.append(part)
        at += part is not None
        to += type(part) is not int
    return tensor[tuple(key)], turned


def _set_item(vm: VM, array: numpy.ndarray, key: object, value: object) -> None:
    target = _tensor(vm, array, True)
    parts = key if type(key) is tuple else (key,)
    if type(value) is numpy.ndarray or type(value) in GRAPH_SCALARS:
        given = _apart(_tensor(vm, value).to(target.dtype), target)
    else:
        given = torch.tensor(numpy.asarray(value).astype(array.dtype).tolist(), dtype=target.dtype)
    if _is_basic(key):
        place, turned = _forward_slices(parts, target)
        while given.dim() > place.dim():  # leading dimensions of size 1, as numpy takes them
            given = given.squeeze(0)
        place.copy_(torch.flip(given.expand(place.shape), turned) if turned else given)
        return
    if any(type(part) in GRAPH_SCALARS for part in parts) and not any(map(_is_mask, parts)):
        numbers = tuple(item_of(vm, part.tensor) if type(part) in GRAPH_SCALARS else part for part in parts)
        if not all(type(part) is torch.SymInt or _is_basic(part) for part in numbers):
            raise Break("SB003", "an unbacked index beside an index array")
        return set_tensor_item(vm, target, numbers, given)
    if any(map(_is_mask, parts)) and not (given.dim() == 0 and type(key) is numpy.ndarray):
        raise Break("SB004", "a mask as the place of several values in an array that is the memory of a tensor")
    forms.ndarray(target)[_given(vm, key)] = given


def _answer(vm: VM, outcome: Any, computed: Any, name: str, given: list[Any]) -> Any:
    """The result as numpy shows it, its values those of the graph."""
    if type(computed) is forms.ndarray:
        computed = computed.tensor
    if outcome is None:
        return None
    if type(outcome) is numpy.ndarray:
        memory = vm.heap.arrays
        if memory.is_array_of(outcome):  # one of the arguments: it was written to, or handed back
            return outcome
        if memory.is_backed(outcome):
            _require_alike(outcome, computed, name)
            memory.add_view(outcome, computed)
            return outcome
        if any(numpy.may_share_memory(outcome, array) for array in given):
            raise Break("SB003", f"{name}: a view of an array, computed by the graph")
        return new_array(vm, _own(vm, _require_alike(outcome, computed, name)), outcome)
    if type(outcome) in GRAPH_SCALAR_OF:
        made = GRAPH_SCALAR_OF[type(outcome)]()
        made.tensor = _own(vm, _require_alike(outcome, computed, name))
        vm.heap.unread_met = True
        return made
    if is_a(outcome, _CONTAINERS) and is_a(computed, _CONTAINERS) and len(outcome) == len(computed):
        parts = [_answer(vm, left, right, name, given) for left, right in zip(outcome, computed, strict=True)]
        return type(outcome)(*parts) if hasattr(outcome, "_fields") else type(outcome)(parts)
    raise Break("SB003", f"{name} of an array that is the memory of a tensor")


def _require_alike(outcome: Any, computed: Any, name: str) -> Any:
    if type(computed) is not FakeTensor:
        raise Break("SB003", f"{name} of an array that is the memory of a tensor")
    if any(map(is_unbacked, computed.shape)):
        raise Break("SB003", f"{name} of an array of unbacked size")
    if outcome.shape == () and tuple(computed.shape) == (1,):  # as torch._numpy gives a median
        computed = computed.reshape(())
    if tuple(computed.shape) != outcome.shape or computed.dtype != torch_dtype(outcome.dtype):
        raise Break("SB003", f"{name} of an array that is the memory of a tensor, which is {outcome.dtype} of "
                             f"{outcome.shape} in numpy and {computed.dtype} of {tuple(computed.shape)} in torch")
    return computed


def _own(vm: VM, computed: Any) -> Any:
    """A tensor whose memory is its own, where torch gave a view and numpy a copy."""
    with torch._C.DisableTorchFunction():
        storage = computed.untyped_storage()._cdata
        lazy = computed.is_conj() or computed.is_neg()
        held = [fake for _, fake in vm.heap.arrays.backed.values()] + list(vm.heap.arrays.inputs.values())
        shared = any(fake.untyped_storage()._cdata == storage for fake in held)
        whole = all(size == 1 or stride for size, stride in zip(computed.shape, computed.stride(), strict=True))
        shared = shared or not whole or vm.heap.by_standin.get(id(computed)) is not None
    if lazy or shared:
        return vm.torch_call(torch.clone, (computed,), None if whole else {"memory_format": torch.contiguous_format})
    return computed
