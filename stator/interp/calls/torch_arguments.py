"""Arguments and settings that a torch call reads.

    x.view(n), n with a Python `__index__`           ->  x.view(2), where torch's parser takes such an object
    torch.rand(4, generator=g)                       ->  g is an input of the graph
    with sdpa_kernel(...): attention(q, k, v)        ->  a guard on the kernels that attention may choose
"""

from __future__ import annotations

import enum
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from stator import _core
from stator.breaks import Break
from stator.graph.state.torch_state import SETTINGS
from stator.guards.global_state import settle_attention
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.lookup import find
from stator.interp.services import VM
from stator.source import CALL_TEXTS, Pinned

_PLAIN = frozenset({FakeTensor, int, float, bool, complex, str, bytes, type(None), type(...), torch.dtype, torch.device,
                    torch.layout, torch.memory_format, torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool, dict,
                    types.FunctionType, types.BuiltinFunctionType, range})


_ASSIGNMENTS = (operator.setitem, torch.Tensor.__setitem__)
_OPERATORS = torch.ops.aten
ATTENTION = frozenset({
    torch.nn.functional.scaled_dot_product_attention, torch._native_multi_head_attention,
    torch._transformer_encoder_layer_fwd, _OPERATORS.scaled_dot_product_attention,
    _OPERATORS.scaled_dot_product_attention.default, _OPERATORS._native_multi_head_attention.default,
    _OPERATORS._transformer_encoder_layer_fwd.default})
_CHOICES = tuple([setting for setting in SETTINGS if "_sdp_" in setting.setter.__name__])
Generator: Any = torch.Generator
RANDOM_STREAM = "torch's random number generator"


class _Index:
    """Stands for an object with an `__index__` where torch is asked whether, and how often, it would ask for it."""

    def __init__(self, value: object, asked: list[object]) -> None:
        self.value = value
        self.asked = asked

    def __index__(self) -> int:
        self.asked.append(self.value)
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
    stood_for: list[object] = []
    asked: list[object] = []

    def posed(value: object) -> _Index:
        stood_for.append(value)
        return _Index(value, asked)

    every = (*args, *(kwargs or {}).values())
    poses = [plain_argument(vm, value, posed) for value in every]
    if stood_for and not takes_indices(fn, poses[:len(args)], dict(zip(kwargs or (), poses[len(args):], strict=True))):
        return tuple(args), kwargs
    numbers = {id(value): _number_of(vm, value) for value in asked}  # torch takes the last answer
    read = [plain_argument(vm, value, lambda each: numbers[id(each)] if id(each) in numbers else _number_of(vm, each))
            for value in every]
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
        return value.item()  # torch's parser takes it for a Python number; not so numpy.bool
    for plain in (int, float):
        named = is_a(value, enum.Enum) and not is_a(value, enum.Flag)
        if is_a(value, plain) and cls.__repr__ is not plain.__repr__ and not named:
            return plain.__pos__(value)  # the code of a graph could not spell it
    if is_a(value, (type, int, torch.nn.Module, torch.Tensor)):  # a tensor is one to torch, whatever its class
        return value
    method = find(vm, cls, "__index__")
    return number_of(value) if type(method) is types.FunctionType else value


def _number_of(vm: VM, value: object) -> int:
    number = vm.call_sync(find(vm, type(value), "__index__"), (value,))
    if not is_a(number, (int, torch.SymInt)):
        raise Raised(TypeError(f"__index__ returned non-int (type {type(number).__name__})"))
    return number  # type: ignore[no-any-return]


CALL_TEXTS[id(_core.attention_kernels)] = lambda: "the kernels allowed by torch.nn.attention.sdpa_kernel"


def guard_kernels(vm: VM) -> None:
    settle_attention()
    if not any(map(vm.torch_state.is_changed, _CHOICES)):
        vm.heap.guard_call(_core.attention_kernels, _core.attention_kernels())
        return
    for setting in _CHOICES:
        if not vm.torch_state.is_changed(setting):
            guard_answer(vm, setting.readers[0], *setting.read())


def guard_answer(vm: VM, reader: object, answer: object) -> None:
    if type(answer) is list:
        vm.heap.guard_call(_as_tuple, tuple(answer), Pinned(reader))
    else:
        vm.heap.guard_call(reader, answer)


def _as_tuple(reader: Any) -> tuple[Any, ...]:
    return tuple(reader())


def require_order(vm: VM, what: str = RANDOM_STREAM) -> None:
    """Break unless what is recorded will run in the program's order, once."""
    if not vm.recorder.backend.in_order or vm.recorder.scope.enclosing is not None:
        raise Break("SB013", what)


def generator_in_graph(vm: VM, generator: object) -> Any:
    """The generator, once the graph knows it."""
    require_order(vm, "a torch.Generator")
    if type(generator) is not Generator:
        raise Break("SB013", "a subclass of torch.Generator")
    if id(generator) not in vm.recorder.nodes:
        vm.recorder.add_object(generator, vm.heap.source_of(generator))
    return generator
