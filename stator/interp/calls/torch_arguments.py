"""Arguments of torch calls in the form torch's own parser would see.   x.view(n), n with an `__index__`  ->  x.view(2)

torch asks objects for their `__index__`; that is the program's code, so it is interpreted here, before the call.  Not
everywhere: `x.view(n)` takes such an object, `x * n` and `x.unsqueeze(n)` do not.  torch's parser says so itself.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.lookup import find
from stator.interp.services import VM

_PLAIN = frozenset({FakeTensor, int, float, bool, complex, str, bytes, type(None), type(...), torch.dtype, torch.device,
                    torch.layout, torch.memory_format, torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool, dict,
                    types.FunctionType, types.BuiltinFunctionType, range})


_ASSIGNMENTS = (operator.setitem, torch.Tensor.__setitem__)


class _Index:
    """Stands for an object with an `__index__` where torch is asked whether it would take one."""

    def __index__(self) -> int:
        return 1


class _Taken(BaseException):
    """torch has read its arguments."""


class _StopAtOnce(TorchDispatchMode):
    def __torch_dispatch__(self, *call: object) -> Any:
        raise _Taken


def takes_indices(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether torch reads these arguments, an _Index among them, as numbers; nothing is computed."""
    try:
        with torch._C.DisableTorchFunction(), _StopAtOnce():
            fn(*args, **kwargs)
    except _Taken:
        return True
    except Exception:
        pass
    return False


def plain_arguments(vm: VM, fn: Any, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], Any]:
    """The arguments, with each object that has a Python `__index__` replaced by its number."""
    if all(type(value) in _PLAIN for value in args) and not kwargs:
        return tuple(args), kwargs
    if fn in _ASSIGNMENTS and type(args[-1]) not in _PLAIN:  # what is assigned is read after the place
        found, _ = plain_arguments(vm, operator.getitem, args[:2], None)
        return (*found, *args[2:]), kwargs
    asked: list[Any] = []

    def posed(value: object) -> Any:
        asked.append(value)
        return _Index()

    every = (*args, *(kwargs or {}).values())
    poses = [plain_argument(vm, value, posed) for value in every]
    if asked and not takes_indices(fn, poses[:len(args)], dict(zip(kwargs or (), poses[len(args):], strict=True))):
        return tuple(args), kwargs
    read = [plain_argument(vm, value, lambda each: _number_of(vm, each)) for value in every]
    return tuple(read[:len(args)]), kwargs and dict(zip(kwargs, read[len(args):], strict=True))


def plain_argument(vm: VM, value: Any, number_of: Callable[[Any], Any]) -> Any:
    cls = type(value)
    if cls in _PLAIN:
        return value
    if cls is tuple or cls is list:
        parts = [plain_argument(vm, part, number_of) for part in value]
        return value if all(a is b for a, b in zip(parts, value, strict=True)) else cls(parts)
    if cls is slice:
        return slice(*[plain_argument(vm, part, number_of) for part in (value.start, value.stop, value.step)])
    if is_a(value, numpy.number) and cls is not numpy.longdouble and cls is not numpy.clongdouble:
        return value.item()  # torch's parser takes it for a number of Python's; not so numpy.bool
    if is_a(value, (type, int, torch.nn.Module, torch.Tensor)):  # a tensor is one to torch, whatever its class
        return value
    method = find(vm, cls, "__index__")
    return number_of(value) if type(method) is types.FunctionType else value


def _number_of(vm: VM, value: Any) -> int:
    number = vm.call_sync(find(vm, type(value), "__index__"), (value,))
    if not is_a(number, int):
        raise Raised(TypeError(f"__index__ returned non-int (type {type(number).__name__})"))
    return number  # type: ignore[no-any-return]
