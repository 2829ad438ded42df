"""Declared dimensions of arguments.   options={"shapes": {"x": {0: "batch"}, "y": {0: Dim("batch", max=64)}}}

Out: which dimension of which argument is which `Dim`; an error for a size out of range, or two sizes of one name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from stator.errors import DeclarationError, OptionTypeError, OptionValueError
from stator.settings.options import Settings

if TYPE_CHECKING:
    import sympy


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
            if bound is not None and type(bound) is not int:
                raise OptionValueError(f"Dim({self.name!r}) cannot be bounded by {bound!r}; use an int")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise OptionValueError(f"Dim({self.name!r}, min={self.min}, max={self.max}) holds no size")

    def text(self) -> str:
        if self.min is None and self.max is None:
            return repr(self.name)
        return f"{self.name!r} ({'' if self.min is None else self.min}..{'' if self.max is None else self.max})"

    def holds(self, size: int) -> bool:
        return (self.min is None or size >= self.min) and (self.max is None or size <= self.max)


NUMBER = None  # the key of an argument that is a number itself


@dataclass(frozen=True)
class Relation:
    """A condition on declared dimensions, over symbols with their names."""

    expression: sympy.Basic
    text: str

    def names(self) -> list[str]:
        return sorted(str(symbol) for symbol in self.expression.free_symbols)

    def of(self, sizes: Mapping[str, int | sympy.Basic]) -> sympy.Basic:
        values = {each: sizes[str(each)] for each in self.expression.free_symbols}
        return self.expression.subs(values, simultaneous=True)


@dataclass
class Declarations:
    """Dimensions of arguments, for one compiled function.

    An argument is named by the text of its source; "*args" and "**kwargs" stand for the variadic ones.
    """

    dims: dict[str, dict[int | None, Dim]] = field(default_factory=dict)
    fixed: dict[str, dict[int | None, int]] = field(default_factory=dict)  # sizes and numbers that are constants
    ranks: dict[str, int] = field(default_factory=dict)
    paths: dict[str, tuple[str | int, ...]] = field(default_factory=dict)  # text -> keys from the argument on
    relations: tuple[Relation, ...] = ()
    others_are_static: bool = False
    aliases: dict[str, str] = field(default_factory=dict)  # how sources spell an argument -> its name

    @property
    def checks(self) -> bool:
        return bool(self.dims or self.fixed or self.ranks)

    def of(self, text: str) -> dict[int | None, Dim]:
        """The declared dimensions of the value that a source calls `text`."""
        if not self.dims:
            return {}
        found = self.dims.get(self.aliases.get(text, text))
        if found is None and self.paths:
            for spelled, name in self.aliases.items():
                if text.startswith(spelled) and text[len(spelled):len(spelled) + 1] in (".", "["):
                    found = found or self.dims.get(name + text[len(spelled):])
        return found or {}

    def check_call(self, function: Callable[..., Any], bound: tuple[Any, ...]) -> None:
        given = self._arguments(function, bound)
        declared = {**dict.fromkeys(self.dims), **dict.fromkeys(self.fixed), **dict.fromkeys(self.ranks)}
        unknown = {str(self.paths.get(text, (text,))[0]) for text in declared} - given.keys()
        if unknown:
            option = "shapes_spec" if self.others_are_static else "options['shapes']"
            raise OptionValueError(f"{option} declares {sorted(unknown)[0]!r}, which is no argument; "
                                   f"there are {', '.join(sorted(name for name in given if name[0] != '*'))}")
        seen: dict[str, tuple[str, int]] = {}
        for name in declared:
            value = _found(given, self.paths.get(name, (name,)))
            self._check_constants(name, value)
            for text, size, dim in _sizes(name, value, self.dims.get(name, {})):
                if not dim.holds(size):
                    raise DeclarationError(f"{text} is {size} in this call, and is declared as {dim.text()}")
                before = seen.setdefault(dim.name, (text, size))
                if before[1] != size:
                    raise DeclarationError(f"{text} is {size} and {before[0]} is {before[1]} in this call; both are "
                                           f"declared as {dim.name!r}")
        sizes = {name: size for name, (_, size) in seen.items()}
        for relation in self.relations:
            if sizes.keys() >= set(relation.names()) and not relation.of(sizes):
                shown = ", ".join(f"{seen[name][0]} is {sizes[name]}" for name in relation.names())
                raise DeclarationError(f"{relation.text} is declared, and does not hold in this call: {shown}")

    def _check_constants(self, name: str, value: object) -> None:
        if name in self.ranks and isinstance(value, torch.Tensor) and value.dim() != self.ranks[name]:
            raise DeclarationError(f"{name} has {value.dim()} dimensions in this call, and is declared with "
                                   f"{self.ranks[name]}")
        for index, expected in self.fixed.get(name, {}).items():
            found = value.shape[index] if isinstance(value, torch.Tensor) and index is not None else value
            if type(found) is int and found != expected:
                text = name if index is None else f"{name}.size({index})"
                raise DeclarationError(f"{text} is {found} in this call, and is declared as {expected}")

    def _arguments(self, function: Callable[..., Any], bound: tuple[Any, ...]) -> dict[str, object]:
        """The arguments of the call by name; those of a module are those of its `forward`."""
        code = function.__code__
        given = dict(zip(code.co_varnames, bound, strict=False))
        module = bound[0] if bound else None
        if isinstance(module, torch.nn.Module) and isinstance(given.get("args"), tuple):
            return self._arguments_of_forward(module, given["args"], given.get("kwargs", {}))
        for flag, name in ((inspect.CO_VARARGS, "*args"), (inspect.CO_VARKEYWORDS, "**kwargs")):
            if code.co_flags & flag:
                place = code.co_argcount + code.co_kwonlyargcount
                place += name == "**kwargs" and bool(code.co_flags & inspect.CO_VARARGS)
                spelled = code.co_varnames[place]
                self.aliases[spelled] = name
                given[name] = given.get(spelled)
        return given

    def _arguments_of_forward(self, module: torch.nn.Module, args: tuple[object, ...],
                              kwargs: dict[str, object]) -> dict[str, object]:
        parameters = list(inspect.signature(type(module).forward).parameters.values())[1:]
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        names = [each.name for each in parameters if each.kind not in variadic]
        positional = [each.name for each in parameters if each.kind is not inspect.Parameter.KEYWORD_ONLY
                      and each.kind not in variadic]
        self.aliases = {f"args[{i}]": name for i, name in enumerate(positional)}
        self.aliases |= {f"kwargs[{name!r}]": name for name in names}
        given: dict[str, object] = {**dict.fromkeys(names), **dict(zip(positional, args, strict=False)),
                 **{name: value for name, value in kwargs.items() if name in names}}
        for each in parameters:
            if each.kind is inspect.Parameter.VAR_POSITIONAL:
                rest = args[len(positional):]
                given["*args"] = rest
                self.aliases |= {f"args[{len(positional) + i}]": f"*args[{i}]" for i in range(len(rest))}
            elif each.kind is inspect.Parameter.VAR_KEYWORD:
                others = {name: value for name, value in kwargs.items() if name not in names}
                given["**kwargs"] = others
                self.aliases |= {f"kwargs[{name!r}]": f"**kwargs[{name!r}]" for name in others}
        return given


def _found(given: object, path: tuple[str | int, ...]) -> object:
    """The value at the end of a path, or None: a step that begins with a dot is an attribute."""
    for step in path:
        if isinstance(step, str) and step.startswith("."):
            fields = getattr(given, "__dict__", None) or {}
            places = (fields, fields.get("_parameters"), fields.get("_buffers"))
            given = next((held[step[1:]] for held in places if held and step[1:] in held), None)
        elif isinstance(given, dict):
            given = dict.get(given, step)
        elif isinstance(given, (list, tuple)) and isinstance(step, int) and step < len(given):
            given = given[step]
        else:
            return None
    return given


def declarations_of(settings: Settings) -> Declarations:
    """Declarations for one function, under the settings of its compile() call."""
    if isinstance(settings.shapes_spec, Declarations):
        return replace(settings.shapes_spec, aliases={})
    return read_declarations(settings.shapes)


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
