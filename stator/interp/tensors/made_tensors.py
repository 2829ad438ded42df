"""torch.tensor() of symbolic numbers.   torch.tensor([[n, 1], [2, n]])  ->  fills, stacked

In: what the program gives to torch.tensor and its siblings.  Out: the tensor, made by operations that take the symbols
as they are, where torch would ask for the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from stator.breaks import Break
from stator.interp.services import VM
from stator.shapes.symbolic_values import SYMBOLIC, as_integer

SEQUENCES = frozenset({list, tuple, torch.Size})


def make_tensor(vm: VM, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch.tensor(n) would ask for the number; a fill does not."""
    data = args[0] if args else kwargs.get("data")
    if type(data) in SEQUENCES and len(args) == 1:
        vm.heap.expose_deep(data)
        if holds_numbers(data):
            return _stacked(vm, data, kwargs)
    if type(data) in SYMBOLIC and len(args) <= 1:
        return _filled(vm, data, kwargs)
    return vm.torch_call(function, args, kwargs)


_DTYPES: dict[type, Any] = {torch.SymInt: torch.int64, torch.SymBool: torch.bool}


def _filled(vm: VM, number: object, kwargs: dict[str, Any]) -> Any:
    settings = {key: value for key, value in kwargs.items() if key != "data"}
    if settings.get("dtype") is None:
        settings["dtype"] = _DTYPES.get(type(number)) or torch.get_default_dtype()
    return vm.torch_call(torch.full, ((), number), settings)


def holds_numbers(data: Any) -> bool:
    """Whether some number in nested lists is open."""
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


_KINDS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
