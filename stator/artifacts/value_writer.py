"""Values and objects as JSON.   3.5, float32, torch.nn.Linear, f.__closure__[0]  ->  data that another process can read

In: values that guards, residuals and graphs hold.  Out: JSON; an object is a number in a table of rows.

A row has a name and facts.  The name leads to the object in another process: a module, a qualified name, or steps from
an object with a name.  Facts are properties that identity implies here and a name does not imply there: the code of a
function, its cells, the bases of a class, the functions of a property.  Other properties can change in this process
too, so guards compare them.  An object without a name raises `NotPortable`.
"""

from __future__ import annotations

import base64
import enum
import functools
import operator
import random
import re
import struct
import sys
import threading
import types
from collections import deque, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from stator import _core
from stator.artifacts.code_content import code_hash
from stator.artifacts.container import Json
from stator.artifacts.raw_steps import NoStep, Step, Thing, attribute, steps_of, take
from stator.guards.guard import MISSING
from stator.heap.raw_access import instance_dict, slot_members
from stator.host.value_kinds import is_a
from stator.source import Source, name_of

_DIRECT = (str, bool, type(None))
_SIMPLE: dict[type, str] = {type(...): "ellipsis", type(NotImplemented): "notimplemented", type(MISSING): "missing"}
_BY_TEXT: dict[type, str] = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory",
                             torch.qscheme: "qscheme"}
_SEQUENCES: dict[type, str] = {tuple: "tuple", list: "list", torch.Size: "size"}
_SETS: dict[type, str] = {frozenset: "frozenset", set: "set"}
_ONE_OBJECT = (bool, type(None), *_SIMPLE, *_BY_TEXT)  # equal ones are the same object
_CONTENTS = (int, float, complex, str, bytes, tuple, frozenset)
_HEAP_TYPE, _ABSTRACT = 1 << 9, 1 << 20
_CLASS_FLAGS = _HEAP_TYPE | _ABSTRACT | 1 << 10 | 1 << 8 | 0xFF << 24  # BASETYPE, IMMUTABLETYPE, builtin bases
_type_flags = type.__dict__["__flags__"].__get__
_type_mro = type.__dict__["__mro__"].__get__
_basic_size, _dict_offset, _weak_offset = [type.__dict__[name].__get__ for name in (
    "__basicsize__", "__dictoffset__", "__weakrefoffset__")]
_class_dict = type.__dict__["__dict__"].__get__
_MUTABLE = (types.CellType, dict, list, set, deque, torch.Generator, types.MappingProxyType, threading.local,
            random.Random)
_REDUCED = (operator.itemgetter, operator.attrgetter, operator.methodcaller)  # what made them is all that they hold
_LIBRARIES = sys.stdlib_module_names - {"__main__"} | {"torch", "numpy"}  # which have versions
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType,
                types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_PARTS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"), staticmethod: ("__func__",), classmethod: ("__func__",),
    types.MethodType: ("__func__", "__self__"), functools.partial: ("func", "args", "keywords"),
    types.UnionType: ("__args__",), types.GenericAlias: ("__origin__", "__args__")}
_tuple_getter = type(vars(namedtuple("_tuple_getter", "x"))["x"])
_NEAR, _FAR, _MOST_NEAR, _MOST = 4, 6, 500, 60_000  # steps of a search, and objects that it looks at


class NotPortable(Exception):
    """A value that another process cannot find."""

    where: tuple[str, int, str] | None = None  # the user's line


def native_facts(value: Thing) -> Json:
    """Kind, own name and owner of an object of C: a program may have put something else under its name."""
    own: Thing = getattr(value, "__objclass__", getattr(value, "__self__", None))
    owner = own.__name__ if is_a(own, types.ModuleType) else class_name(own if is_a(own, type) else type(own))
    return ["native", class_name(type(value)), str(getattr(value, "__name__", "")), owner]


class ValueWriter:
    """Collects the rows of one file."""

    def __init__(self, root: types.FunctionType) -> None:
        self.rows: list[list[Json]] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = [root]  # found by name
        self._made: list[object] = []
        self._index: dict[int, tuple[str, str]] | None = None
        self._metaclasses: dict[int, tuple[str, str]] = {}
        self._module_classes: dict[int, str] = {}
        self._writers: list[Callable[[Any], Json]] = []
        self._sources: dict[Source, int] = {}
        self._anchors = 0  # how many of the kept objects a search has started from
        self._reached: dict[int, tuple[Any, Step, Any] | None] = {}
        self._waiting: deque[tuple[Any, int]] = deque()
        self.places: dict[int, Source] = {}  # id of an object that the call was given -> where
        self.codes: dict[int, object] = {}  # id of a code object -> a function with that code
        self._numbers[id(root)] = 0
        self.rows.append([["root"], None])
        self.rows[0][1] = self._facts(root)

    def makes(self, write: Callable[[Any], Json]) -> None:
        """Objects that are made anew in the other process: `write` gives the data, or None for other objects."""
        self._writers.append(write)

    # ------------------------------------------------------------------ values

    def value(self, value: Thing) -> Json:
        """Data from which another process gets an equal value, or the object that plays the same part."""
        cls = type(value)
        if cls in _DIRECT or cls is int and -(1 << 53) < value < 1 << 53:
            return value  # type: ignore[no-any-return]
        if cls is int:
            return ["int", hex(value)]
        if cls is float:
            return ["float", value.hex()]
        if cls is complex:
            return ["complex", value.real.hex(), value.imag.hex()]
        if cls is bytes:
            return ["bytes", base64.b64encode(value).decode()]
        if cls in _SEQUENCES:
            return [_SEQUENCES[cls], *[self.value(item) for item in value]]
        if cls in _SETS:
            return [_SETS[cls], *sorted([self.value(item) for item in value], key=repr)]
        if cls is dict and namespace_name(value) is None and "__builtins__" not in value:
            return ["dict", *[[self.value(key), self.value(item)] for key, item in value.items()]]
        if cls in (slice, range):
            return [cls.__name__, self.value(value.start), self.value(value.stop), self.value(value.step)]
        if cls in _SIMPLE:
            return [_SIMPLE[cls]]
        if cls in _BY_TEXT:
            return [_BY_TEXT[cls], str(value).removeprefix("torch.")]
        if cls is torch.device:
            return ["device", value.type, value.index]
        if cls in (torch.SymInt, torch.SymFloat, torch.SymBool):
            raise NotPortable(f"the symbol {value}")
        return ["o", self.number(value)]

    def number(self, value: Thing) -> int:
        """The row of an object."""
        known = self._numbers.get(id(value))
        if known is None:
            if is_a(value, Source) and value in self._sources:  # two sources may be equal
                return self._sources[value]
            number = self._numbers[id(value)] = len(self.rows)
            self.rows.append([None, None])
            self._made.append(value)
            for write in self._writers:
                made = write(value)
                if made is not None:
                    self.rows[number][0] = ["make", made]
                    if is_a(value, Source):
                        self._sources[value] = number
                    return number
            del self._numbers[id(value)]
            known = self._add(value, self._name(value))
        return known

    def identity(self, value: Thing) -> Json:
        """Data of an object that counts by identity: constants and code by their content, at the place they hold."""
        if is_content(value):
            return ["at", ["code", code_hash(value)] if type(value) is types.CodeType else self.value(value)]
        if type(value) in _ONE_OBJECT:
            return self.value(value)
        return ["o", self.number(value)]

    def _add(self, value: object, name: list[Json]) -> int:
        number = self._numbers[id(value)] = len(self.rows)
        self.rows.append([name, None])
        self._kept.append(value)
        library = name[0] == "qualified" and str(name[1]).partition(".")[0] in _LIBRARIES
        self.rows[number][1] = self._facts(value, library)
        return number

    # ------------------------------------------------------------------ facts

    def _facts(self, value: Thing, is_of_library: bool = False) -> Json:
        cls = type(value)
        if cls is types.FunctionType:
            return ["function", code_hash(value.__code__), self.number(value.__globals__),
                    *[self._cell(value, place) for place in range(len(value.__closure__ or ()))]]
        if cls is types.CodeType:
            return ["code", code_hash(value)]
        if is_a(value, type):
            if not _type_flags(value) & _HEAP_TYPE or _class_dict(value).get("__module__", "") == "torch._C":
                return native_facts(value)
            return ["class", class_name(cls), [self.value(base) for base in _type_mro(value)[1:]],
                    _type_flags(value) & _CLASS_FLAGS]
        if is_a(value, (numpy.ufunc, type(numpy.where))):
            return native_facts(value)
        if cls in (types.BuiltinFunctionType, types.MethodWrapperType, *_DESCRIPTORS):
            return native_facts(value)
        if is_a(value, (types.ModuleType, OpOverload, OpOverloadPacket, HigherOrderOperator)):
            return None
        facts: list[Json] = ["of", self.value(cls)]
        parts = _PARTS.get(cls) or next((_PARTS[base] for base in _type_mro(cls) if base in _PARTS), None)
        if parts is not None:
            return [*facts, [[name, self.value(attribute(value, name))] for name in parts]]
        if _class_dict(cls).get("__module__") == "typing" and (own := instance_dict(value)) is not None:
            return [*facts, [[name, self.value(each)] for name, each in sorted(own.items())]]  # nobody changes these
        if cls in _REDUCED:
            return [*facts, [], *[self.value(each) for each in value.__reduce__()]]
        if is_a(value, enum.Enum):
            return [*facts, [["_value_", self.value(value._value_)]]]
        if cls is re.Pattern:
            return [*facts, [["pattern", self.value(value.pattern)], ["flags", value.flags]]]
        if cls is _tuple_getter:
            return [*facts, [["__doc__", value.__doc__]], value.__reduce__()[1][0]]
        if is_a(value, numpy.dtype):
            return [*facts, [["str", value.str]]]
        if is_a(value, _CONTENTS):
            base = next(base for base in _type_mro(cls) if base in _CONTENTS)
            return [*facts, [], self.value(base(value))]
        if (not _type_flags(cls) & _HEAP_TYPE or has_state_of_c(cls) and not is_of_library) \
                and not is_a(value, _MUTABLE) and not is_a(value, torch.Tensor):
            self._refuse(value, "an object whose state is not known")
        return facts

    def _cell(self, function: types.FunctionType, place: int) -> int:
        cell = (function.__closure__ or ())[place]
        known = self._numbers.get(id(cell))
        return self._add(cell, ["step", self._numbers[id(function)], "cell", place]) if known is None else known

    def _refuse(self, value: object, why: str) -> None:
        raise NotPortable(f"{why}: {name_of(value)} of type {name_of(type(value))}")

    # ------------------------------------------------------------------ names

    def _name(self, value: Thing) -> list[Json]:
        cls = type(value)
        if is_a(value, types.ModuleType):
            name = value.__dict__.get("__name__")
            if type(name) is str and sys.modules.get(name) is value:
                return ["module", name]
        if is_a(value, (OpOverload, OpOverloadPacket)):
            return ["operator", str(value)]
        if is_a(value, HigherOrderOperator):
            return ["operator", f"higher_order.{value.name()}"]
        if is_a(value, torch._ops._OpNamespace):
            return ["operator", value.name]
        if cls is dict:
            for space in list(torch.ops.__dict__.values()):
                if is_a(space, torch._ops._OpNamespace) and space.__dict__ is value:
                    return ["step", self.number(space), "dict", 0]
            name = namespace_name(value)
            if name is not None:
                return ["namespace", name]
            for each in self._kept:  # the names of a text that was executed
                if type(each) is types.FunctionType and each.__globals__ is value:
                    return ["step", self._numbers[id(each)], "attr", "__globals__"]
        if cls in _DESCRIPTORS:
            owner, name = value.__objclass__, value.__name__
            if _class_dict(owner).get(name) is value:
                return ["step", self.number(owner), "class", name]
        if is_a(value, enum.Enum) and _class_dict(cls).get("_member_map_", {}).get(value._name_) is value:
            return ["member", self.number(cls), value._name_]
        if cls is types.MethodWrapperType and type(value.__self__) in _DESCRIPTORS:
            return ["step", self.number(value.__self__), "wrapper", value.__name__]
        if cls is types.BuiltinFunctionType and is_a(value.__self__, type):
            if _class_dict(value.__self__).get(value.__name__) is value:
                return ["step", self.number(value.__self__), "class", value.__name__]
        if cls is types.CodeType and id(value) in self.codes:
            return ["step", self.number(self.codes[id(value)]), "attr", "__code__"]
        found = self._qualified(value) or self._listed(value) or self._seen(value) or self._searched(value)
        if found is None:
            self._refuse(value, "an object without a name")
        assert found is not None
        return found

    def _qualified(self, value: Thing) -> list[Json] | None:
        """By `__module__` and `__qualname__`, where these tell the truth or nearly so."""
        if type(value) not in (types.FunctionType, types.BuiltinFunctionType) and not is_a(value, type):
            return None
        holder = _class_dict(value) if is_a(value, type) else None
        module = holder.get("__module__") if holder is not None else value.__module__
        path = type.__dict__["__qualname__"].__get__(value) if holder is not None else value.__qualname__
        if type(module) is not str or type(path) is not str or module not in sys.modules:
            return None
        place: object = sys.modules[module].__dict__
        steps: list[Step] = []
        for number, part in enumerate(path.split(".")):
            step: Step = ("class", part) if number else ("key", part)
            try:
                place = take(place, step)
            except NoStep:
                return None
            steps.append(step)
        if place is value:
            return ["qualified", module, path]
        if not steps or type(place) in (types.ModuleType, dict):
            return None
        found = steps_to(place, value, _NEAR)
        if found is None:
            return None
        start = self._intermediate(["qualified", module, path])
        for step in found[:-1]:
            start = self._intermediate(["step", start, *step])
        return ["step", start, *found[-1]]

    def _seen(self, value: object) -> list[Json] | None:
        """By the place in the arguments of the call; another process has another object there."""
        place = self.places.get(id(value))
        return None if place is None else ["place", self.number(place)]

    def _listed(self, value: object) -> list[Json] | None:
        """By the name that some module has for it."""
        if self._index is None:
            self._index = {}
            for name, module in list(sys.modules.items()):
                if type(module) is not types.ModuleType and is_a(module, types.ModuleType):  # put in the place of one
                    self._module_classes.setdefault(id(type(module)), name)
                    held = [(key, item) for key, item in module.__dict__.items() if type(item) is types.ModuleType]
                    self._index.update({id(item): (name, key) for key, item in held
                                        if item is not sys.modules.get(item.__name__)})
                elif type(module) is types.ModuleType and (not name.startswith("stator.") or name == _core.__name__):
                    for key, item in list(module.__dict__.items()):
                        if type(item) not in (int, str, float, bool, type(None), tuple):
                            self._index.setdefault(id(item), (name, key))
                        if is_a(item, type) and type(item) is not type:
                            self._metaclasses.setdefault(id(type(item)), (name, key))
        found = self._index.get(id(value))
        if found is None and id(value) in self._metaclasses:
            return ["step", self._intermediate(["qualified", *self._metaclasses[id(value)]]), "type", 0]
        if found is None and id(value) in self._module_classes:
            return ["step", self._intermediate(["module", self._module_classes[id(value)]]), "type", 0]
        return None if found is None else ["qualified", *found]

    def _searched(self, value: object) -> list[Json] | None:
        """By steps from objects that have a row."""
        for each in self._kept[self._anchors:]:
            if id(each) not in self._reached:
                self._reached[id(each)] = None
            self._waiting.appendleft((each, 0))
        self._anchors = len(self._kept)
        while id(value) not in self._reached and self._waiting and len(self._reached) < _MOST:
            place, depth = self._waiting.popleft()
            for step, item in _inner_steps(place):
                if id(item) not in self._reached:
                    self._reached[id(item)] = place, step, item  # which keeps it alive
                    if depth + 1 < _FAR:
                        self._waiting.append((item, depth + 1))
        return self._path(value) if self._reached.get(id(value)) is not None else None

    def _path(self, value: object) -> list[Json]:
        way = self._reached[id(value)]
        assert way is not None
        place, (kind, detail), _ = way
        start = self._numbers.get(id(place))
        if start is None:
            start = self._intermediate(self._path(place))
        return ["step", start, kind, detail]

    def _intermediate(self, name: list[Json]) -> int:
        """A row of an object on the way to another one: found by name, without facts."""
        self.rows.append([name, None])
        return len(self.rows) - 1


def has_state_of_c(cls: type) -> bool:
    """Whether objects of a class hold more than a `__dict__` and slots: state that code in C has put there."""
    held = len(slot_members(cls)) + (_dict_offset(cls) > 0) + (_weak_offset(cls) > 0)
    return _basic_size(cls) > _basic_size(object) + held * struct.calcsize("P")


def class_name(cls: type) -> str:
    return f"{_class_dict(cls).get('__module__')}.{name_of(cls)}"


def namespace_name(value: dict[Any, Any]) -> str | None:
    """The module whose names a dict holds; such a dict counts by identity."""
    name = value.get("__name__")
    module = sys.modules.get(name) if type(name) is str else None
    return name if module is not None and module.__dict__ is value else None


def is_content(value: object) -> bool:
    """Whether a value is its content: where a guard compares its identity, an equal one serves as well."""
    return type(value) in (int, float, complex, str, bytes, tuple, frozenset, torch.Size, torch.device, types.CodeType)


def steps_to(start: object, value: object, depth: int) -> list[Step] | None:
    """A short way from one object to another."""
    level: list[tuple[Any, list[Step]]] = [(start, [])]
    for _ in range(depth):
        following = [(item, [*way, step]) for each, way in level for step, item in _inner_steps(each)]
        for item, way in following:
            if item is value:
                return way
        level = following[:_MOST_NEAR]
    return None


def _inner_steps(value: object) -> Iterator[tuple[Step, object]]:
    """Steps of a search; it does not enter namespaces of modules, which are listed, nor numbers and texts."""
    for step, item in steps_of(value):
        if type(item) not in (int, float, str, bool, type(None), types.ModuleType, bytes) \
                and not (type(item) is dict and "__builtins__" in item) and step[1] != "__globals__":
            yield step, item
