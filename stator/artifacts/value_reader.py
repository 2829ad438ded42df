"""Values and objects from JSON.   rows of `value_writer`  ->  objects of this process

In: the rows of a file.  Out: values; `Stale` where a name leads nowhere, or to an object of which a fact differs.
Rows are read when something refers to them.  Reading runs no code of the program: modules that the program has not
imported are not imported here, except those of torch and Stator.
"""

from __future__ import annotations

import base64
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from stator.artifacts.code_content import code_hash
from stator.artifacts.container import Json
from stator.artifacts.raw_steps import Data, NoStep, Thing, attribute, take
from stator.artifacts.value_writer import (
    _CLASS_FLAGS,
    _CONTENTS,
    _REDUCED,
    _class_dict,
    _type_flags,
    _type_mro,
    class_name,
    native_facts,
)
from stator.guards.guard import MISSING, same_constant
from stator.guards.guard_semantics import Unreadable, evaluate
from stator.host.lazy_imports import load
from stator.host.value_kinds import is_a
from stator.source import Source, name_of

_SINGLE: dict[str, object] = {"ellipsis": ..., "notimplemented": NotImplemented, "missing": MISSING}
_OF_TORCH = frozenset({"dtype", "layout", "memory", "qscheme"})
_MADE: dict[str, Callable[[Any], object]] = {"tuple": tuple, "list": list, "size": torch.Size, "frozenset": frozenset,
                                             "set": set}
Maker = Callable[[Any, Callable[[object], None]], object]


class Stale(Exception):
    """The data does not fit this process; the text is the first reason."""

    where: tuple[str, int, str] | None = None  # the user's line that reads the fact


class ValueReader:
    """The objects of one file."""

    def __init__(self, rows: list[list[Json]], root: types.FunctionType) -> None:
        self.rows, self.root = rows, root
        self._known: dict[int, object] = {}
        self._failed: dict[int, str] = {}
        self._makers: dict[str, Maker] = {}
        self._bound: tuple[Any, ...] = ()
        self._of_call: set[int] = set()  # rows of objects that the call was given

    def start_call(self, bound: tuple[Any, ...]) -> None:
        """From now on places are those of another call: forget every object that was found by one."""
        self._bound = bound
        if self._of_call:
            self._known.clear()
            self._failed.clear()
            self._of_call.clear()

    def finds_places(self) -> bool:
        """Whether an object was found by its place in the arguments of the call."""
        return bool(self._of_call)

    def _placed(self, source: Source) -> object:
        try:
            found = evaluate(source, self._bound)
        except Unreadable:
            raise Stale(f"{source.text()} cannot be read") from None
        for number in self._of_call:  # objects that were two are two
            if self._known.get(number) is found:
                raise Stale(f"{source.text()} is an object that the call has twice")
        return found

    def made_by(self, kind: str, make: Maker) -> None:
        """`make(data, note)` makes the objects of a kind; it may `note` an object before it fills it."""
        self._makers[kind] = make

    def value(self, data: Data) -> Thing:
        if type(data) is not list:
            return data
        kind = data[0]
        if kind == "o":
            return self.found(data[1])
        if kind in _MADE:
            return _MADE[kind]([self.value(item) for item in data[1:]])
        if kind == "float":
            return float.fromhex(data[1])
        if kind == "int":
            return int(data[1], 16)
        if kind == "complex":
            return complex(float.fromhex(data[1]), float.fromhex(data[2]))
        if kind == "bytes":
            return base64.b64decode(data[1])
        if kind == "dict":
            return {self.value(key): self.value(item) for key, item in data[1:]}
        if kind in ("slice", "range"):
            return (slice if kind == "slice" else range)(*[self.value(item) for item in data[1:]])
        if kind in _SINGLE:
            return _SINGLE[kind]
        if kind in _OF_TORCH:
            return getattr(torch, data[1])
        if kind == "device":
            return torch.device(data[1], data[2]) if data[2] is not None else torch.device(data[1])
        raise Stale(f"data of the unknown kind {kind!r}")

    def placed(self, data: Data, read: Callable[[], object]) -> Thing:
        """Read what `ValueWriter.identity` wrote; a content must be that of the object that `read` finds."""
        if type(data) is not list or data[0] != "at":
            return self.value(data)
        found = read()
        if type(data[1]) is list and data[1][0] == "code":
            holds = type(found) is types.CodeType and code_hash(found) == data[1][1]
        else:
            holds = is_alike(found, self.value(data[1]))
        if not holds:
            raise Stale(f"{name_of(found)} is another value")
        return found

    def found(self, number: int) -> Thing:
        """The object of a row, with all its facts compared."""
        if number in self._known:
            return self._known[number]
        if number in self._failed:
            raise Stale(self._failed[number])
        name, facts = self.rows[number]
        try:
            if name[0] == "make":  # type: ignore[index]
                made = self._made(number, name[1])  # type: ignore[index]
                self._known[number] = made
                return made
            found = self._known[number] = self._found(name)
            if name[0] == "place":  # type: ignore[index]
                self._of_call.add(number)
            if facts is not None:
                self._compare(found, facts, name)
        except Stale as stale:
            self._known.pop(number, None)
            self._failed[number] = str(stale)
            raise
        return found

    def _made(self, number: int, data: Data) -> object:
        def note(shell: object) -> None:
            self._known[number] = shell

        maker = self._makers.get(data[0])
        if maker is None:
            raise Stale(f"an object of the unknown kind {data[0]!r}")
        return maker(data[1:], note)

    # ------------------------------------------------------------------ names

    def _found(self, name: Data) -> object:
        kind = name[0]
        if kind == "root":
            return self.root
        if kind == "module":
            return module_named(name[1])
        if kind == "namespace":
            return module_named(name[1]).__dict__
        if kind == "operator":
            return operator_named(name[1])
        if kind == "member":
            members = _class_dict(self.found(name[1])).get("_member_map_", {})
            if name[2] not in members:
                raise Stale(f"{name_of(self.found(name[1]))} has no member {name[2]}")
            return members[name[2]]
        if kind == "place":
            return self._placed(self.found(name[1]))
        if kind == "step":
            return self._taken(self.found(name[1]), (name[2], name[3]), name)
        if kind == "qualified":
            place: object = module_named(name[1]).__dict__
            for number, part in enumerate(name[2].split(".")):
                place = self._taken(place, ("class", part) if number else ("key", part), name)
            return place
        raise Stale(f"a name of the unknown kind {kind!r}")

    def _taken(self, place: object, step: Data, name: Data) -> object:
        try:
            return take(place, step)
        except NoStep as error:
            raise Stale(f"{shown(name)} does not exist: {error}") from None

    # ------------------------------------------------------------------ facts

    def _compare(self, found: Thing, facts: Data, name: Data) -> None:
        kind = facts[0]
        if kind == "function":
            self._require(type(found) is types.FunctionType, name, "is no function")
            self._require(code_hash(found.__code__) == facts[1], name, f"has other code{place_of(found)}")
            self._require(self.found(facts[2]) is found.__globals__, name, "has other global names")
            cells = found.__closure__ or ()
            self._require(len(cells) == len(facts) - 3 and all(
                self.found(number) is cell for number, cell in zip(facts[3:], cells, strict=True)),
                name, "has other closure cells")
        elif kind == "code":
            self._require(type(found) is types.CodeType and code_hash(found) == facts[1], name, "has changed")
        elif kind == "native":
            self._require(native_facts(found) == facts, name, "was replaced")
        elif kind == "class":
            self._require(is_a(found, type) and class_name(type(found)) == facts[1], name, "has another metaclass")
            bases = [self.value(base) for base in facts[2]]
            mro = _type_mro(found)[1:]
            self._require(len(mro) == len(bases) and all(map(_is, mro, bases)), name, "has other bases")
            self._require(_type_flags(found) & _CLASS_FLAGS == facts[3], name, "is another kind of class")
        else:
            cls = type(found)
            self._require(cls is self.value(facts[1]), name, f"has the type {name_of(cls)}")
            for part, expected in facts[2] if len(facts) > 2 else ():
                self._require(is_alike(attribute(found, part), self.value(expected)), name, f"has another {part}")
            if cls in _REDUCED:
                made, expected = found.__reduce__(), [self.value(each) for each in facts[3:]]
                self._require(len(made) == len(expected) and all(map(is_alike, made, expected)), name,
                              "was made otherwise")
            elif len(facts) > 3 and type(facts[3]) is int and not is_a(found, _CONTENTS):
                self._require(found.__reduce__()[1][0] == facts[3], name, "is another field")
            elif len(facts) > 3:
                base = next(base for base in _type_mro(cls) if base in _CONTENTS)
                self._require(same_constant(base(found), self.value(facts[3])), name, "has another value")

    def _require(self, holds: bool, name: Data, why: str) -> None:
        if not holds:
            raise Stale(f"{shown(name)} {why}")


def is_alike(one: Thing, other: Thing) -> bool:
    """Equal constants or the same object; containers by their items."""
    if type(one) is type(other) and type(one) in (tuple, list, torch.Size):
        return len(one) == len(other) and all(map(is_alike, one, other))
    if type(one) is type(other) is dict:
        return list(one) == list(other) and all(map(is_alike, one.values(), other.values()))
    return same_constant(one, other)


def _is(one: object, other: object) -> bool:
    return one is other


def module_named(name: str) -> types.ModuleType:
    """A module that the program has imported, or one of torch or Stator."""
    module = sys.modules.get(name)
    if module is None and name.split(".")[0] in ("torch", "stator", "builtins"):
        module = load(name) if name.startswith("stator") else importlib.import_module(name)
    if type(module) is None or not isinstance(module, types.ModuleType):
        raise Stale(f"module {name} is not imported")
    return module


def operator_named(name: str) -> object:
    found: Thing = torch.ops
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise Stale(f"there is no operator {name}") from None
    return found


def shown(name: Data) -> str:
    """A name for people."""
    if name[0] == "root":
        return "the compiled function"
    if name[0] in ("module", "namespace", "operator"):
        return str(name[1])
    if name[0] == "qualified":
        return f"{name[1]}.{name[2]}"
    return f"the {name[2]} {name[3]} of an object" if name[0] == "step" else str(name[-1])


def place_of(function: types.FunctionType) -> str:
    return f" ({function.__code__.co_filename}:{function.__code__.co_firstlineno})"
