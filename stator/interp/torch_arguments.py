"""Arguments of torch calls in the form torch's own parser would see.   x.view(n), n with an `__index__`  ->  x.view(2)

torch asks objects for their `__index__`; that is the program's code, so it is interpreted here, before the call.
"""

from __future__ import annotations

import types
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.interp.frame import Raised
from stator.interp.lookup import find
from stator.kinds import is_a

_PLAIN = frozenset({FakeTensor, int, float, bool, complex, str, bytes, type(None), type(...), torch.dtype, torch.device,
                    torch.layout, torch.memory_format, torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool, dict,
                    types.FunctionType, types.BuiltinFunctionType, range})


def plain_arguments(vm: Any, args: Any) -> tuple[Any, ...]:
    """The arguments, with each object that has a Python `__index__` replaced by its number."""
    if all(type(value) in _PLAIN for value in args):
        return tuple(args)
    return tuple(plain_argument(vm, value) for value in args)


def plain_argument(vm: Any, value: Any) -> Any:
    cls = type(value)
    if cls in _PLAIN:
        return value
    if cls is tuple or cls is list:
        parts = [plain_argument(vm, part) for part in value]
        return value if all(a is b for a, b in zip(parts, value, strict=True)) else cls(parts)
    if cls is slice:
        return slice(*[plain_argument(vm, part) for part in (value.start, value.stop, value.step)])
    if is_a(value, numpy.number) and cls is not numpy.longdouble and cls is not numpy.clongdouble:
        return value.item()  # torch's parser takes it for a number of Python's; not so numpy.bool
    if is_a(value, (type, int, torch.nn.Module, torch.Tensor)):  # a tensor is one to torch, whatever its class
        return value
    method = find(vm, cls, "__index__")
    if type(method) is not types.FunctionType:
        return value
    number = vm.call_sync(method, (value,))
    if not is_a(number, int):
        raise Raised(TypeError(f"__index__ returned non-int (type {type(number).__name__})"))
    return number
