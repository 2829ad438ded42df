"""Tensors indexed with, and made of, symbolic numbers.   x[n], x[:, t], x[a:b, n] = v;  torch.tensor([[n, 1], [2, n]])

In: a key or data of which torch would read the numbers.  Out: the same item or tensor, by operations that take symbols:
`select` for an index, one index tensor for a list of them, ordered bounds for a written slice; fills, stacked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import expect_true

from stator.breaks import Break
from stator.graph.values.graph_numbers import SLICE_BOUND, element_behind, item_of_sum
from stator.interp.numbers.symbolic_numbers import INDEXES, item_of
from stator.interp.services import VM
from stator.interp.torch_function_protocol import refuse_patched
from stator.shapes.environment import UNKNOWN
from stator.shapes.symbolic_values import SYMBOLIC, as_integer, is_unbacked, specialise

_INDEX_DTYPES = frozenset({torch.int64, torch.int32, torch.int16, torch.int8})
_MASKS = frozenset({torch.bool, torch.uint8})
_ADVANCED = frozenset({FakeTensor, list, bool})  # indices that are no places or slices
SEQUENCES = frozenset({list, tuple, torch.Size})
_DTYPES: dict[type, Any] = {torch.SymInt: torch.int64, torch.SymBool: torch.bool}
_KINDS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def tensor_key(vm: VM, key: Any) -> Any:
    """The key with the numbers in tensors that torch would read while it indexes."""
    cls = type(key)
    if cls is tuple:
        vm.heap.expose(key)
        if any(type(part) in INDEXES or type(part) is list for part in key):
            return tuple([_index_tensor(vm, part) if type(part) in (tuple, list) else tensor_key(vm, part)
                          for part in key])
        return key
    if cls is slice:
        return slice(*[_bound(vm, part) for part in (key.start, key.stop, key.step)])
    if cls is FakeTensor and key.dim() == 0 and key.dtype in _INDEX_DTYPES:
        return item_of(vm, key)
    return key


def _bound(vm: VM, part: object) -> Any:
    if type(part) is not FakeTensor:
        return part
    refuse_patched(vm, "__index__")
    number = item_of_sum(vm.recorder, part)
    return item_of(vm, part) if number is None else number


def _index_tensor(vm: VM, part: Any) -> Any:
    """x[(i, j), :] for tensors i, j: one index tensor.  Torch takes a list that is the whole index for a tuple."""
    vm.heap.expose(part)
    if part and all(type(item) is FakeTensor and item.dim() == 0 and item.dtype in _INDEX_DTYPES for item in part):
        return vm.torch_call(torch.stack, (list(part),), None)
    return part


def get_tensor_item(vm: VM, tensor: FakeTensor, key: object) -> Any:
    key = _known_list(vm, key)
    parts = key if type(key) is tuple else (key,)
    if not _holds_symbols(parts):
        if any(map(_is_unbacked_slice, parts)) and not any(type(part) in _ADVANCED for part in parts):
            key = _normalised(vm, tensor, parts)
        return vm.torch_call(operator.getitem, (tensor, key), None)
    view, rest = _selected(vm, tensor, _with_index_tensors(vm, parts))
    return vm.torch_call(operator.getitem, (view, rest), None) if rest else view


def set_tensor_item(vm: VM, tensor: FakeTensor, key: object, value: Any) -> None:
    key = _known_list(vm, key)
    parts = key if type(key) is tuple else (key,)
    unbacked = any(is_unbacked(bound) for part in parts for bound in _bounds(part))
    if not unbacked and not _holds_symbols(parts):
        vm.torch_call(operator.setitem, (tensor, key, value), None)
        return
    view, rest = _selected(vm, tensor, _with_index_tensors(vm, parts))
    if not unbacked or any(type(part) in _ADVANCED for part in rest):
        vm.torch_call(operator.setitem, (view, rest or ..., value), None)
        return
    view = get_tensor_item(vm, view, _normalised(vm, view, rest)) if rest else view
    if type(value) is FakeTensor:
        if value.dim() > view.dim():
            raise Break("SB003", "a value of more dimensions than the data-dependent slice it is written to")
        vm.torch_call(torch.Tensor.copy_, (view, _fitted(vm, view, value)), None)
    else:
        vm.torch_call(torch.Tensor.fill_, (view, value), None)


def _known_list(vm: VM, key: object) -> object:
    """x[[n, None]]: a list of more than numbers is a tuple to torch in some cases, and it warns: it gets a known n.

    Where guards compute values ahead, every n is known: torch has no fake for an unbacked element of a view's history.
    """
    if vm.recorder.known.ahead:
        key = tuple([_ahead(vm, part) for part in key]) if type(key) is tuple else _ahead(vm, key)
    if type(key) is not list or torch.SymInt not in map(type, key) or _are_numbers(key):
        return key
    return [specialise(item) if type(item) is torch.SymInt else item for item in key]


def _ahead(vm: VM, part: object) -> object:
    number = vm.recorder.known.of_number(part) if type(part) is torch.SymInt and is_unbacked(part) else UNKNOWN
    return part if number is UNKNOWN else number


def _holds_symbols(parts: tuple[Any, ...]) -> bool:
    return any(type(part) is torch.SymInt or type(part) is list and torch.SymInt in map(type, part) for part in parts)


def _with_index_tensors(vm: VM, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """x[[n, 1]]: one index tensor, where torch itself would read the numbers."""
    return tuple([make_tensor(vm, torch.tensor, (part,), {}) if type(part) is list and _are_numbers(part) else part
                  for part in parts])


def _are_numbers(part: list[Any]) -> bool:
    return torch.SymInt in map(type, part) and all(type(item) in (int, torch.SymInt) for item in part)


def _selected(vm: VM, tensor: FakeTensor, parts: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The view that symbolic indices, slices and None of a key select, and the rest of the key.

    As torch does: from left to right, index tensors at the end.  An index out of range stays in the key as a number.
    """
    inside = tuple([_number_if_outside(tensor, parts, place) for place in range(len(parts))])
    if any(new is not old for new, old in zip(inside, parts, strict=True)):  # the message names a dimension
        inside = tuple([part if is_unbacked(part) else specialise(part) if type(part) is torch.SymInt else part
                        for part in inside])
    parts = inside
    missing = tensor.dim() - sum([_dims(part) for part in parts])
    basic: list[Any] = []
    rest: list[Any] = []
    selected: list[tuple[int, Any]] = []
    dim = 0  # of the view that `basic` gives
    for part in parts:
        whole = [slice(None)] * _dims(part)
        if type(part) is torch.SymInt:
            selected.append((dim, part))
            basic += whole
        elif part is None or type(part) is slice and not any(map(is_unbacked, _bounds(part))):
            basic.append(part)
            rest.append(slice(None))
        else:
            basic += [part] if part is ... else whole
            rest.append(part)
        dim += missing if part is ... else 1 if part is None else len(whole)
    view: Any = tensor
    if not all(part is ... or _is_whole(part) for part in basic):
        view = vm.torch_call(operator.getitem, (view, tuple(basic)), None)
    for dim, index in reversed(selected):
        view = vm.torch_call(torch.Tensor.select, (view, dim, index), None)
    return view, () if all(part is ... or _is_whole(part) for part in rest) else tuple(rest)


def _number_if_outside(tensor: FakeTensor, parts: tuple[Any, ...], place: int) -> Any:
    part = parts[place]
    if type(part) is not torch.SymInt:
        return part
    before = parts[:place]
    dim = sum([_dims(each) for each in before])
    if any(each is ... for each in before):
        dim += tensor.dim() - sum([_dims(each) for each in parts])
    return part if dim < tensor.dim() and _is_in_range(part, tensor.shape[dim]) else specialise(part)


def _is_in_range(index: int, size: int) -> bool:
    if is_unbacked(index) or is_unbacked(size):
        return True  # for the graph to find out
    return bool(index < size) and bool(index >= -size)


def _dims(part: Any) -> int:
    """How many dimensions of the tensor a part of a key stands for."""
    if part is None or part is ... or type(part) is bool or type(part) is torch.SymBool:
        return 0
    return part.dim() if type(part) is FakeTensor and part.dtype in _MASKS else 1


def _is_unbacked_slice(part: object) -> bool:
    return type(part) is slice and (part.step is None or type(part.step) is int and part.step == 1) \
        and (is_unbacked(part.start) or is_unbacked(part.stop))


def _is_whole(part: object) -> bool:
    return type(part) is slice and part.start is None and part.stop is None and part.step is None


def _fitted(vm: VM, view: FakeTensor, value: FakeTensor) -> Any:
    """`value` in the shape of `view`: what has size 1 is repeated, any other data-dependent size is the same one."""
    sizes = list(value.shape)
    offset = view.dim() - value.dim()
    repeated = False
    for dim, size in enumerate(sizes):
        wanted = view.shape[offset + dim]
        if not is_unbacked(wanted) and not is_unbacked(size):
            continue
        if type(size) is int and size == 1:
            repeated = True
        else:
            expect_true(size == wanted)
        sizes[dim] = wanted
    return vm.torch_call(torch.Tensor.expand, (value, *sizes), None) if repeated else value


def _normalised(vm: VM, tensor: FakeTensor, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key with unbacked slice bounds in 0..size and in order: the length of the slice is then their difference."""
    missing = tensor.dim() - sum(part is not None and part is not ... for part in parts)
    found: list[Any] = []
    dim = 0
    for part in parts:
        if _is_unbacked_slice(part):
            size = tensor.shape[dim]
            start = _within(vm, tensor, 0 if part.start is None else part.start, size)
            stop = _within(vm, tensor, size if part.stop is None else part.stop, size, start)
            part = slice(start, stop)
        found.append(part)
        dim += missing if part is ... else part is not None
    return tuple(found)


def _within(vm: VM, tensor: FakeTensor, bound: object, size: object, least: object = 0) -> Any:
    """A slice bound as Python reads it: negative from the end, never beyond either end, nor below `least`."""
    if type(bound) not in SYMBOLIC and type(least) not in SYMBOLIC:
        return bound
    # Keys and values of a cache are cut at the same bounds: each number that a compiler meets costs it time.
    bounds = vm.recorder.slice_bounds
    place = vm.recorder.graph, *(_term(part) for part in (bound, size, least))
    if place not in bounds:
        origin = element_behind(vm.recorder, bound)
        arguments = (tensor if origin is None else origin, bound, size, least)
        found = bounds[place] = vm.torch_call(SLICE_BOUND, arguments, None)
        bounds[place[0], _term(found), *place[2:]] = found  # which is within already
    return bounds[place]


def _term(number: Any) -> Any:
    return number.node.expr if type(number) in SYMBOLIC else number


def _bounds(part: object) -> tuple[Any, ...]:
    return (part.start, part.stop, part.step) if type(part) is slice else (part,)


def make_tensor(vm: VM, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch.tensor(n) would ask for the number; a fill does not."""
    data = args[0] if args else kwargs.get("data")
    if type(data) in SEQUENCES and len(args) == 1:
        vm.heap.expose_deep(data)
        if holds_numbers(data):
            return _stacked(vm, data, kwargs)
        if function is torch.tensor and not kwargs and _are_scalars(data):
            return vm.torch_call(torch.stack, (list(args[0]),), None)
    if type(data) in SYMBOLIC and len(args) <= 1:
        return _filled(vm, data, kwargs)
    return vm.torch_call(function, args, kwargs)


def _are_scalars(data: Any) -> bool:
    """Whether a list holds tensors without dimensions and nothing else, of which it takes the values."""
    with torch._C.DisableTorchFunction():
        return bool(data) and all(type(each) is FakeTensor and each.dim() == 0 and each.dtype is data[0].dtype
                                  and each.device.type == "cpu" and not each.requires_grad for each in data)


def _filled(vm: VM, number: object, kwargs: dict[str, Any]) -> Any:
    settings = {key: value for key, value in kwargs.items() if key != "data"}
    if settings.get("dtype") is None:
        settings["dtype"] = _DTYPES.get(type(number)) or torch.get_default_dtype()
    return vm.torch_call(torch.full, ((), number), settings)


def holds_numbers(data: Any) -> bool:
    return any(type(item) in SYMBOLIC or type(item) in SEQUENCES and holds_numbers(item) for item in data)


def _numbers_in(data: Any) -> Iterator[Any]:
    for item in data:
        if type(item) in SEQUENCES:
            yield from _numbers_in(item)
        else:
            yield item


def _stacked(vm: VM, data: object, kwargs: dict[str, Any]) -> Any:
    """torch.tensor([[n], [2.0]]): its numbers one by one, stacked as they are nested."""
    numbers = list(_numbers_in(data))
    if any(type(item) not in SYMBOLIC and type(item) not in (int, float, bool) for item in numbers):
        raise Break("SB003", "a tensor made of lists with symbolic numbers and other things")
    if kwargs.get("dtype") is None:
        found = {_KINDS.get(type(item), type(item)) for item in numbers}
        kind = torch.get_default_dtype() if float in found else torch.int64 if int in found else torch.bool
        kwargs = {**kwargs, "dtype": kind}
    return _stack(vm, data, kwargs)


def _stack(vm: VM, data: Any, kwargs: Any) -> Any:
    if not data or any((type(item) in SEQUENCES) != (type(data[0]) in SEQUENCES) for item in data):
        raise Break("SB003", "a tensor made of uneven lists with symbolic numbers")
    rows = [_stack(vm, item, kwargs) if type(item) in SEQUENCES else _filled(vm, as_integer(item), kwargs)
            for item in data]
    return vm.torch_call(torch.stack, (rows,), None)
