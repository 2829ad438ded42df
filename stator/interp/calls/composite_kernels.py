"""Interpret the Python kernel that an operator is composed of.   torch.ops.demo.scale(x, 2)  ->  scale(x, 2.0)

In: an operator whose only kernel is a Python function under CompositeImplicitAutograd, and its arguments.  Out: the
value of that function.  torch runs such a kernel in place of the operator whatever the backend is, so that its body is
captured like that of any function: its effects are known, and so is what it reads.  Arguments that the schema would
convert in a way that is not known here leave the operator in the graph.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Mapping, Sequence

import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses import FakeTensor

from stator.breaks import Break
from stator.graph.analysis.mutation import qualified_name
from stator.guards.guard import Kind
from stator.heap.reached_state import is_of_library, python_kernel, python_keys
from stator.interp.frame import Continuation, Frame
from stator.interp.services import VM
from stator.shapes.symbolic_values import SYMBOLIC
from stator.source import CallOf, Pinned

OPERATORS = (OpOverload, OpOverloadPacket)
_COMPOSITE = "CompositeImplicitAutograd"
_FOLDERS = re.compile(r"registered at .*/")
_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_CONVERTED = (list, torch.dtype, torch.layout, torch.memory_format)  # made by the dispatcher from empty arguments
_EXACT: dict[str, tuple[type, ...]] = {
    "TensorType": (FakeTensor,), "IntType": (int,), "SymIntType": (int, torch.SymInt), "BoolType": (bool,),
    "FloatType": (float,), "StringType": (str,), "NumberType": (int, float, bool), "DeviceObjType": (torch.device,),
    "ScalarTypeType": (torch.dtype,), "LayoutType": (torch.layout,), "MemoryFormatType": (torch.memory_format,)}


class _Unknown(Exception):
    """A conversion that the schema makes and this module does not."""


class CompositeResult(Continuation):
    """Value of the kernel, as the dispatcher hands it back: several results are a tuple."""

    __slots__ = ("operator", "cont")

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        count = len(self.operator._schema.returns)
        found = (value,) if count == 1 else value
        if not isinstance(found, (tuple, list)) or len(found) != count \
                or any(type(each) is not FakeTensor for each in found):
            raise Break("SB005", f"a kernel of {self.operator} returns something else than its schema says")
        vm.give(value if count == 1 else tuple(found), self.cont)


def call_composite(vm: VM, target: OpOverload | OpOverloadPacket, args: Sequence[object],
                   kwargs: Mapping[str, object] | None, cont: object) -> bool:
    """Call the kernel of a composite operator; False where the operator itself goes into the graph."""
    operator = _only_overload(target)
    if operator is None or operator.namespace in ("aten", "prims"):
        return False
    kernel = _kernel(operator)
    if kernel is None:
        return False
    for value in (*args, *(kwargs or {}).values()):
        vm.heap.expose_deep(value)
    try:
        given, named = _converted(operator, args, kwargs or {})
    except _Unknown:
        return False
    vm.heap.guard_call(registrations, registrations(operator.name()), Pinned(operator.name()))
    vm.heap.guard(CallOf(Pinned(kernel_now), (Pinned(operator),)), Kind.ID, kernel)  # one line may register several
    vm.call(kernel, given, named, CompositeResult(operator, cont))
    return True


def kernel_now(operator: OpOverload) -> object:
    """A pure reader for guards: the Python function that torch would call for a composite operator."""
    return python_kernel(operator, _COMPOSITE)[0]


def registrations(name: str) -> str:
    """Kernels of an operator, and the lines that registered them; without folders, which other machines do not have."""
    return _FOLDERS.sub("registered at ", torch._C._dispatch_dump(name))


def _only_overload(target: OpOverload | OpOverloadPacket) -> OpOverload | None:
    if isinstance(target, OpOverload):
        return target
    names = target.overloads()
    return getattr(target, names[0]) if len(names) == 1 else None


def _kernel(operator: OpOverload) -> types.FunctionType | None:
    if qualified_name(operator) in OPDEFS or operator._schema.is_mutable \
            or any(each.type.kind() != "TensorType" for each in operator._schema.returns):
        return None
    if python_keys(operator) != [_COMPOSITE] or not torch._C._dispatch_has_kernel(operator.name()):
        return None
    kernel, *met = python_kernel(operator, _COMPOSITE)
    if type(kernel) is not types.FunctionType or is_of_library(kernel.__globals__.get("__name__")):
        return None
    code = kernel.__code__  # a partial or a method has parameters that the schema does not name
    count = code.co_argcount + code.co_kwonlyargcount
    if count != len(operator._schema.arguments) or code.co_flags & _VARIADIC:
        return None
    return kernel if all(type(each) in _CONVERTED for each in met) else None


def _converted(operator: OpOverload, args: Sequence[object],
               kwargs: Mapping[str, object]) -> tuple[tuple[object, ...], dict[str, object]]:
    """Arguments as the dispatcher hands them to a Python kernel: those at the end that equal a default are left out."""
    left, given, named = dict(kwargs), [], {}
    positional = [each for each in operator._schema.arguments if not each.kwarg_only]
    if len(args) > len(positional):
        raise _Unknown
    for number, argument in enumerate(operator._schema.arguments):
        if number < len(args):
            value = args[number]
        elif argument.name in left:
            value = left.pop(argument.name)
        elif argument.has_default_value():
            value = argument.default_value
        else:
            raise _Unknown
        value = _as_declared(value, argument.real_type)
        is_default = argument.has_default_value() and type(value) is type(argument.default_value) \
            and value == argument.default_value
        if not argument.kwarg_only:
            given.append((value, is_default))
        elif not is_default:
            named[argument.name] = value
    if left:
        raise _Unknown
    while given and given[-1][1]:
        given.pop()
    return tuple([value for value, _ in given]), named


def _as_declared(value: object, declared: torch._C.JitType) -> object:
    kind = declared.kind()
    if kind == "OptionalType":
        return None if value is None else _as_declared(value, declared.getElementType())
    if kind == "ListType" and isinstance(value, (list, tuple)) and type(value) in (list, tuple, torch.Size):
        return [_as_declared(each, declared.getElementType()) for each in value]
    if kind == "FloatType" and type(value) is int:
        return float(value)
    if type(value) in _EXACT.get(kind, ()) and (type(value) not in SYMBOLIC or kind == "SymIntType"):
        return value
    raise _Unknown
