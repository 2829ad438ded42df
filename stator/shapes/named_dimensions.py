"""Declared dimensions of arguments.   options={"shapes": {"x": {0: "batch"}, "y": {0: Dim("batch", max=64)}}}

Out: which dimension of which argument is which `Dim`; an error for a size out of range, or two sizes of one name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from stator.errors import DeclarationError, OptionTypeError, OptionValueError


@dataclass(frozen=True)
class Dim:
    """A named size, and the values it may have."""

    name: str
    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise OptionTypeError(f"Dim({self.name!r}) is not accepted; a dimension has a name")
        for bound in (self.min, self.max):
            if bound is not None and (type(bound) is not int or bound < 0):
                raise OptionValueError(f"Dim({self.name!r}) cannot be bounded by {bound!r}; use an int from 0")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise OptionValueError(f"Dim({self.name!r}, min={self.min}, max={self.max}) holds no size")

    def text(self) -> str:
        if self.min is None and self.max is None:
            return repr(self.name)
        return f"{self.name!r} ({'' if self.min is None else self.min}..{'' if self.max is None else self.max})"

    def holds(self, size: int) -> bool:
        return (self.min is None or size >= self.min) and (self.max is None or size <= self.max)


NUMBER = None  # the key of an argument that is a number itself


@dataclass
class Declarations:
    """Argument -> dimension -> Dim, for one compiled function."""

    dims: dict[str, dict[int | None, Dim]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)  # how sources spell an argument -> its name

    def of(self, text: str) -> dict[int | None, Dim]:
        """The declared dimensions of the value that a source calls `text`."""
        return self.dims.get(self.aliases.get(text, text), {}) if self.dims else {}

    def check_call(self, function: Callable[..., Any], bound: tuple[Any, ...]) -> None:
        given = self._arguments(function, bound)
        unknown = self.dims.keys() - given.keys()
        if unknown:
            raise OptionValueError(f"options['shapes'] declares {sorted(unknown)[0]!r}, which is no argument; "
                                   f"there are {', '.join(sorted(given))}")
        seen: dict[str, tuple[str, int]] = {}
        for name, dims in self.dims.items():
            for text, size, dim in _sizes(name, given[name], dims):
                if not dim.holds(size):
                    raise DeclarationError(f"{text} is {size} in this call, and is declared as {dim.text()}")
                before = seen.setdefault(dim.name, (text, size))
                if before[1] != size:
                    raise DeclarationError(f"{text} is {size} and {before[0]} is {before[1]} in this call; both are "
                                           f"declared as {dim.name!r}")

    def _arguments(self, function: Callable[..., Any], bound: tuple[Any, ...]) -> dict[str, Any]:
        """The arguments of the call by name; those of a module are those of its `forward`."""
        code = function.__code__
        given = dict(zip(code.co_varnames, bound, strict=False))
        module = bound[0] if bound else None
        if not isinstance(module, torch.nn.Module) or not isinstance(given.get("args"), tuple):
            return given
        names = list(inspect.signature(type(module).forward).parameters)[1:]
        self.aliases = {f"args[{i}]": name for i, name in enumerate(names)}
        self.aliases |= {f"kwargs[{name!r}]": name for name in names}
        return {**dict.fromkeys(names), **dict(zip(names, given["args"], strict=False)), **given.get("kwargs", {})}


def read_declarations(shapes: object) -> Declarations:
    if not isinstance(shapes, Mapping):
        raise OptionTypeError(f"options['shapes']={shapes!r} is not accepted; use a dict from argument to dimensions")
    return Declarations({name: dict(_read(name, value)) for name, value in shapes.items()})


def _read(argument: object, value: object) -> Iterator[tuple[int | None, Dim]]:
    if not isinstance(argument, str):
        raise OptionTypeError(f"options['shapes'] holds the key {argument!r}; arguments are named by str")
    if isinstance(value, (str, Dim)):
        yield NUMBER, _dim(value)
        return
    if isinstance(value, (list, tuple)):
        value = {i: each for i, each in enumerate(value) if each is not None}
    if not isinstance(value, Mapping):
        raise OptionTypeError(f"options['shapes'][{argument!r}]={value!r} is not accepted; use a dict from dimension "
                              "to name, a list of names (None: a constant), or a name for a number")
    for index, each in value.items():
        if type(index) is not int:
            raise OptionTypeError(f"options['shapes'][{argument!r}] holds the dimension {index!r}; use an int")
        yield index, _dim(each)


def _dim(value: object) -> Dim:
    if isinstance(value, str):
        return Dim(value)
    if isinstance(value, Dim):
        return value
    raise OptionTypeError(f"{value!r} is no dimension; use a name or stator.Dim(name, min=, max=)")


def _sizes(name: str, value: object, dims: dict[int | None, Dim]) -> Iterator[tuple[str, int, Dim]]:
    for index, dim in dims.items():
        if index is None:
            if type(value) is int:
                yield name, value, dim
        elif isinstance(value, torch.Tensor):
            if not -value.dim() <= index < value.dim():
                raise DeclarationError(f"{name} has {value.dim()} dimensions in this call, and its dimension {index} "
                                       f"is declared as {dim.text()}")
            yield f"{name}.size({index % value.dim()})", value.shape[index], dim
