"""Declared dimensions in torch's words.   torch.compile(f, shapes_spec=ParamsSpec({"x": TensorSpec([B, None])}))

Out: the same `Declarations` as those of options["shapes"]; what they do not name is a constant.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import sympy
import torch

from stator.errors import OptionTypeError, OptionValueError
from stator.settings.options import Settings
from stator.shapes.named_dimensions import NUMBER, Declarations, Dim, Relation

if TYPE_CHECKING:
    from torch.fx.experimental.dynamic_spec import IntVar, ParamsSpec, ShapesSpec

_MODULE = "torch.fx.experimental.dynamic_spec"
_Path = tuple[str | int, ...]


def with_shapes_spec(settings: Settings, spec: object) -> Settings:
    """Settings with the declarations of torch.compile's `shapes_spec`."""
    if settings.dynamic is not None:
        raise OptionValueError("dynamic and shapes_spec are both given; shapes_spec says which sizes are symbolic")
    if settings.shapes:
        raise OptionValueError("options['shapes'] and shapes_spec are both given; use one of them")
    return replace(settings, shapes_spec=read_shapes_spec(spec))


def read_shapes_spec(spec: object) -> Declarations:
    """The declarations of a ShapesSpec, a ParamsSpec or a dict of parameters."""
    if importlib.util.find_spec(_MODULE) is None:
        raise OptionValueError(f"shapes_spec= is not accepted with torch {torch.__version__}, which does not define "
                               "it; use options={'shapes': ...}")
    from torch.fx.experimental.dynamic_spec import ParamsSpec, ShapesSpec

    if isinstance(spec, (dict, ParamsSpec)):
        spec = ShapesSpec(spec)
    if not isinstance(spec, ShapesSpec):
        raise OptionTypeError(f"shapes_spec={spec!r} is not accepted; use a ShapesSpec, a ParamsSpec or a dict of "
                              "parameters")
    return _Reader().read(spec)


@dataclass
class _Reader:
    """One specification: names for its variables, and what it declares."""

    found: Declarations = field(default_factory=lambda: Declarations(others_are_static=True))
    leaves: list[tuple[str, int | None, torch.SymInt]] = field(default_factory=list)
    variables: dict[sympy.Basic, IntVar] = field(default_factory=dict)  # that stand alone somewhere, by their symbols
    same: dict[sympy.Basic, sympy.Basic] = field(default_factory=dict)  # variables that are assumed to be equal

    def read(self, spec: ShapesSpec) -> Declarations:
        for path, leaf in _parameters(spec._params):
            self.leaf(path, leaf)
        conditions = [condition.node.expr for condition in spec.assumptions]
        for condition in conditions:
            if isinstance(condition, sympy.Eq) and all(isinstance(side, sympy.Symbol) for side in condition.args):
                one, other = map(self.root, condition.args)
                self.same.update({other: one} if one != other else {})
        names = self.names()
        for text, index, size in self.leaves:
            self.declare(text, index, size, names)
        self.found.relations += tuple(self.relation(each, names) for each in conditions if each not in (True, False))
        if sympy.false in conditions:
            raise OptionValueError("shapes_spec assumes a condition that never holds")
        return self.found

    def leaf(self, path: _Path, spec: object) -> None:
        """Note one place of the arguments, or the places inside of it."""
        from torch.fx.experimental import dynamic_spec as words

        text = _text(path)
        if isinstance(spec, words.TensorSpec):
            self.found.ranks[text] = len(spec)
            for index, size in enumerate(spec):
                self.size(text, path, index, size)
        elif isinstance(spec, words.ObjectSpec):
            for name, value in spec.items():
                self.leaf((*path, f".{name}"), value)
        elif isinstance(spec, words.DictSpec):
            for key, value in spec.items():
                if isinstance(key, str) and key.startswith("."):
                    raise OptionValueError(f"shapes_spec declares the key {key!r} of {text}; keys with a dot in front "
                                           "are not accepted")
                self.leaf((*path, key), value)
        elif isinstance(spec, words.SeqSpec):
            for index, value in enumerate(spec._entries):
                self.leaf((*path, index), value)
        else:
            self.size(text, path, NUMBER, spec)

    def size(self, text: str, path: _Path, index: int | None, size: object) -> None:
        from torch.fx.experimental.dynamic_spec import IntVar

        if len(path) > 1:
            self.found.paths[text] = path
        if size is None:
            return
        if isinstance(size, torch.SymInt):
            if isinstance(size, IntVar):
                self.variables[size.sympy_sym] = size
            self.leaves.append((text, index, size))
        elif type(size) is int:
            self.found.fixed.setdefault(text, {})[index] = size
        else:
            raise OptionTypeError(f"shapes_spec declares {text} as {size!r}; use a TensorSpec, an IntVar, an int or "
                                  "None")

    def root(self, symbol: sympy.Basic) -> sympy.Basic:
        while symbol in self.same:
            symbol = self.same[symbol]
        return symbol

    def names(self) -> dict[sympy.Basic, sympy.Symbol]:
        """A name for each variable: its own, with a number where another variable has it already."""
        names: dict[sympy.Basic, sympy.Symbol] = {}
        for symbol, variable in self.variables.items():
            root = self.root(symbol)
            if root not in names:
                name, number = variable.name, 1
                while sympy.Symbol(name) in names.values():
                    number += 1
                    name = f"{variable.name}#{number}"
                names[root] = sympy.Symbol(name)
            names[symbol] = names[root]
        return names

    def declare(self, text: str, index: int | None, size: torch.SymInt, names: dict[sympy.Basic, sympy.Symbol]) -> None:
        from torch.fx.experimental.dynamic_spec import IntVar

        dims = self.found.dims.setdefault(text, {})
        if isinstance(size, IntVar):
            root = self.root(size.sympy_sym)
            equal = [each for symbol, each in self.variables.items() if self.root(symbol) == root]
            low = max((each.min for each in equal if each.min is not None), default=None)
            high = min((each.max for each in equal if each.max is not None), default=None)
            dims[index] = Dim(str(names[size.sympy_sym]), low or None if index is not NUMBER else low, high)
            return
        made = self.relation(size.node.expr, names)
        dims[index] = Dim(made.text)
        self.found.relations += (Relation(sympy.Eq(sympy.Symbol(made.text), made.expression, evaluate=False),
                                          f"{text if index is None else f'{text}.size({index})'} == {made.text}"),)

    def relation(self, expression: sympy.Basic, names: dict[sympy.Basic, sympy.Symbol]) -> Relation:
        unknown = sorted(str(each).partition("#")[0] for each in expression.free_symbols - self.variables.keys())
        if unknown:
            raise OptionValueError(f"shapes_spec uses {unknown[0]!r} in an expression, and it is no size or number of "
                                   "its own anywhere in the specification")
        named = expression.xreplace(names)
        return Relation(named, str(named))


def _parameters(params: ParamsSpec | None) -> Iterator[tuple[_Path, object]]:
    if params is None:
        return
    for name, spec in params._named_args.items():
        yield (name,), spec
    for index, spec in enumerate(params._varargs or ()):
        yield ("*args", index), spec
    for name, spec in (params._varkw or {}).items():
        yield ("**kwargs", name), spec


def _text(path: _Path) -> str:
    """The place as its source spells it."""
    first, *steps = path
    return str(first) + "".join(step if isinstance(step, str) and step.startswith(".") else f"[{step!r}]"
                                for step in steps)
