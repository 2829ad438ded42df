"""How a torch callable is spelled in an FX graph.   Tensor.view -> call_method "view"; x[0] -> operator.getitem"""

from __future__ import annotations

import functools
import keyword
import operator
import re
import types
from collections.abc import Callable
from typing import Any

import torch

from stator.host.suspended_patches import is_tensor_member, is_tensor_value

_SLOTS: dict[str, Any] = {
    "__getitem__": operator.getitem, "__setitem__": operator.setitem, "__delitem__": operator.delitem,
}


@functools.cache
def _spell_hashed(func: Any) -> tuple[str, Any]:
    cls = type(func)
    name = getattr(func, "__name__", None)
    if cls is types.MethodWrapperType:  # the __get__ or __set__ of a Tensor property
        kind = "get" if name == "__get__" else "set"
        return f"{kind}attr", func.__self__.__name__
    if name in _SLOTS and is_tensor_member(func, name):
        return "call_function", _SLOTS[name]
    if cls in (types.MethodDescriptorType, types.WrapperDescriptorType, types.FunctionType) \
            and is_tensor_member(func, name):
        return "call_method", name
    if cls is types.FunctionType and is_tensor_value(func):
        return "call_method", name  # `Tensor.__pow__` is a wrapper of `pow`, which it is called
    return "call_function", func


_property_wrappers: dict[tuple[str, int], tuple[str, Any]] = {}


def spell(func: Callable[..., Any]) -> tuple[str, Any]:
    """(op, target) for FX; ("getattr" | "setattr", name) for a Tensor property."""
    if type(func) is types.MethodWrapperType:  # made anew at every access: hash by what it wraps
        key = (func.__name__, id(func.__self__))
        found = _property_wrappers.get(key)
        if found is None:
            owner: Any = func.__self__
            found = _property_wrappers[key] = ("getattr" if key[0] == "__get__" else "setattr", owner.__name__)
        return found
    if type(func) is types.FunctionType and not (func.__module__ or "").startswith("torch."):
        return "call_function", func  # a function of the user's, which must not be kept
    return _spell_hashed(func)


_BETWEEN_WORDS = re.compile(r"\W+", re.ASCII)


def input_name(text: str) -> str:
    """A readable FX name for a graph input.   self.layers[0].weight -> self_layers_0_weight"""
    return legal_name(name_parts(text))


def name_parts(text: str) -> str:
    """A text with what stands between its words turned into underscores: `legal_name` of it is its input's name."""
    return _BETWEEN_WORDS.sub("_", text)


def legal_name(name: str) -> str:
    name = name.strip("_")
    # `self` is the module's own parameter in the code FX generates.
    return name if name.isidentifier() and not keyword.iskeyword(name) and name != "self" else f"arg_{name}"


_DTYPE_OF: dict[Any, torch.dtype] = {bool: torch.bool, int: torch.int64, float: torch.float64,
                                     complex: torch.complex128}
_TENSOR_TYPE = type(torch.HalfTensor)


def spelled_types(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """x.to(int), x.type(torch.HalfTensor): as FX's code can say it, dtypes and names in place of classes.

    `from`, which no code can say, is the first argument behind the tensor wherever torch has it.
    """
    if "from" in kwargs and args:
        args = (args[0], kwargs["from"], *args[1:])
        kwargs = {name: value for name, value in kwargs.items() if name != "from"}
    if any(map(_is_type, args)) or any(map(_is_type, kwargs.values())):
        return tuple(map(_spelled, args)), {name: _spelled(value) for name, value in kwargs.items()}
    return args, kwargs


def _is_type(value: object) -> bool:
    return type(value) is type or type(value) is _TENSOR_TYPE


def _spelled(value: Any) -> Any:
    if type(value) is _TENSOR_TYPE:
        return f"{value.__module__}.{value.__name__}"
    return _DTYPE_OF.get(value, value) if type(value) is type else value
