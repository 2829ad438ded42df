"""Find the objects that a call can reach.   a function and its arguments  ->  each object, with a path to it

    args[0], args[0]['scale'], f.COUNT (a global that f names), f.<cell n>, self.layers[0].weight
"""

from __future__ import annotations

import collections
import functools
import gc
import logging
import random
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from stator.breaks import Break
from stator.cache.nested import Origin, origin_of
from stator.heap import raw_access
from stator.host.value_kinds import is_a

LIMIT = 200_000
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
STATEFUL = (torch.Generator, random.Random, numpy.random.Generator, bytearray)
COMPILER_MARK = "_dynamo_"  # attributes of tensors that are addressed to compilers: libraries set none while compiled
_NO_STATE = raw_access.CONSTANT_TYPES | raw_access.IDENTITY_TYPES


class TooMuch(Exception):
    """More objects than an audit looks at."""


@dataclass(frozen=True, eq=False)
class Reached:
    """One object, and how it was reached first."""

    value: Any
    path: str


def reach(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, Reached]:
    found: dict[int, Reached] = {}
    todo: list[tuple[Any, str]] = [(function, getattr(function, "__name__", "fn"))]
    todo += [(value, name) for name, value in reversed(kwargs.items())]
    todo += [(value, f"args[{number}]") for number, value in reversed(list(enumerate(args)))]
    while todo:
        value, path = todo.pop()
        if type(value) in _NO_STATE and not is_a(value, type) or id(value) in found:
            continue
        if is_a(value, type) and not of_the_program(value.__module__, value):
            continue
        if len(found) >= LIMIT:
            raise TooMuch(f"{LIMIT:,} objects")
        found[id(value)] = Reached(value, path)
        todo += reversed([(part, f"{path}{name}") for name, part in parts(value)])
    return found


def of_the_program(module: str, cls: type) -> bool:
    """Whether a class is written in Python, outside torch and the standard library."""
    for member in vars(cls).values():
        code = getattr(getattr(member, "__func__", member), "__code__", None)
        if type(code) is types.CodeType:
            return origin_of(code.co_filename) is Origin.PROGRAM and not module.startswith("torch.")
    own = vars(cls).get("__dict__")
    return not module.startswith(("torch.", "builtins")) and type(own) is types.GetSetDescriptorType


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The objects that one object holds, each with what is added to its path."""
    kind = type(value)
    if kind is types.FunctionType:
        return function_parts(value)
    if kind is types.MethodType:
        return iter((("", value.__func__), (".__self__", value.__self__)))
    if kind is types.CellType:
        return iter([(".contents", value.cell_contents)] if value != types.CellType() else [])
    if kind is functools.partial:
        return iter([(".func", value.func), (".args", value.args), (".keywords", value.keywords)])
    if is_a(value, torch.Tensor):
        return tensor_parts(value)
    if is_a(value, type):
        return ((f".{name}", part) for name, part in list(vars(value).items())
                if name not in ("__dict__", "__weakref__", "__doc__", "__module__"))
    if is_a(value, (types.ModuleType, numpy.ndarray, logging.Manager)) or kind in STATEFUL:
        return iter(())
    return object_parts(value)


def function_parts(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f".<cell {name}>", cell
    for name in ("__defaults__", "__kwdefaults__", "__dict__"):
        if held := getattr(function, name):
            yield f".{name}", held
    if origin_of(function.__code__.co_filename) is Origin.PROGRAM:
        for name in global_names(function):
            if name in function.__globals__:
                yield f":{name}", function.__globals__[name]


@functools.lru_cache(4096)
def _names_of(code: types.CodeType) -> tuple[str, ...]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            names += _names_of(constant)
    return tuple(dict.fromkeys(names))


def global_names(function: types.FunctionType) -> tuple[str, ...]:
    """Names that the function's code, and the code inside it, may read or write in its module."""
    return _names_of(function.__code__)


def tensor_parts(tensor: torch.Tensor) -> Iterator[tuple[str, Any]]:
    if tensor.is_leaf and tensor.grad is not None:
        yield ".grad", tensor.grad
    for name, part in list((raw_access.instance_dict(tensor) or {}).items()):
        if not name.startswith(COMPILER_MARK):
            yield f".{name}", part


def pairs_of(held: dict[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return list(raw_access.items_in_order(held))
    except Break:  # an OrderedDict that was written to as a plain dict has no other order
        return list(dict.items(held))


def object_parts(value: Any) -> Iterator[tuple[str, Any]]:
    if is_a(value, _SEQUENCES):
        yield from ((f"[{number}]", part) for number, part in enumerate(raw_access.raw_members(value)))
    elif is_a(value, dict):
        for number, (key, part) in enumerate(pairs_of(value)):
            yield f".keys()[{number}]", key
            yield f"[{key!r}]" if type(key) in raw_access.CONSTANT_TYPES else f".values()[{number}]", part
    elif type(value).__flags__ & (1 << 9) == 0 and gc.is_tracked(value) and raw_access.instance_dict(value) is None:
        yield from ((".<held>", part) for part in gc.get_referents(value) if not is_a(part, (type, types.ModuleType)))
        return
    yield from ((f".{name}", part) for name, part in list((raw_access.instance_dict(value) or {}).items()))
    yield from ((f".{member.__name__}", part) for member, part in raw_access.slot_values(value).items())
    yield ".__class__", type(value)
