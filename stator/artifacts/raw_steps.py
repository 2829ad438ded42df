"""Steps from one object to the next that run no code of the program.   function -> its cell -> the contents

In: an object and one step, as data.  Out: the object behind the step (`take`), or every step that an object has
(`steps_of`).  A portable name is a root and some of these steps.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, TypeAlias

from stator.heap.raw_access import instance_dict
from stator.host.value_kinds import is_a

Step: TypeAlias = "tuple[str, str | int]"
Thing: TypeAlias = Any  # an object of the program, of any type
Data: TypeAlias = Any  # decoded JSON, whose form the writer of its kind defines

_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    types.FunctionType: ("__code__", "__defaults__", "__kwdefaults__", "__globals__"),
    types.MethodType: ("__func__", "__self__"),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.partial: ("func", "args", "keywords"),
    functools.cached_property: ("func",),
    type(functools.lru_cache(len)): ("__wrapped__",),
    types.MappingProxyType: (),
}
_DICTS = (dict, OrderedDict)
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_class_dict = type.__dict__["__dict__"].__get__
_bases = type.__dict__["__bases__"].__get__
_absent = object()


def attributes_of(cls: type) -> tuple[str, ...]:
    """Attributes of C that lead from an object to its parts; of subclasses of descriptors and partials, too."""
    known = _ATTRIBUTES.get(cls)
    return known if known is not None else next((_ATTRIBUTES[base] for base in cls.__mro__ if base in _ATTRIBUTES), ())


def attribute(value: Thing, name: str) -> object:
    """Read such an attribute, whatever a subclass puts in its place."""
    for base in type(value).__mro__ if type(value) not in _ATTRIBUTES else ():
        if base in _ATTRIBUTES and name in base.__dict__:
            return base.__dict__[name].__get__(value)
    return getattr(value, name)


class NoStep(LookupError):
    """The object has no such step."""


def take(value: Thing, step: Step) -> object:
    """The object behind a step."""
    kind, detail = step
    found: Thing = _absent
    if kind == "attr" and detail in attributes_of(type(value)):
        found = attribute(value, str(detail))
    elif kind == "cell" and type(value) is types.FunctionType and int(detail) < len(value.__closure__ or ()):
        found = (value.__closure__ or ())[int(detail)]
    elif kind == "contents" and type(value) is types.CellType:
        found = _contents(value)
    elif kind == "const" and type(value) is types.CodeType and int(detail) < len(value.co_consts):
        found = value.co_consts[int(detail)]
    elif kind == "class" and is_a(value, type):
        found = _class_dict(value).get(detail, _absent)
    elif kind == "base" and is_a(value, type) and int(detail) < len(_bases(value)):
        found = _bases(value)[int(detail)]
    elif kind == "type" and is_a(value, (type, types.ModuleType)):
        found = type(value)
    elif kind == "dict":
        found = value.__dict__ if is_a(value, types.ModuleType) else instance_dict(value)
        found = _absent if found is None else found
    elif kind == "key" and type(value) in _DICTS:
        found = dict.get(value, detail, _absent)
    elif kind == "value" and type(value) in _DICTS and int(detail) < len(value):
        found = [*dict.values(value)][int(detail)]
    elif kind == "item" and type(value) in (tuple, list) and int(detail) < len(value):
        found = value[detail]
    elif kind == "wrapper" and type(value) in _DESCRIPTORS and detail in ("__get__", "__set__", "__delete__"):
        found = getattr(value, str(detail))
    elif kind == "vars":
        found = (instance_dict(value) or {}).get(str(detail), _absent)
    if found is _absent:
        raise NoStep(f"{type(value).__name__} has no {kind} {detail!r}")
    return found


def steps_of(value: Thing) -> Iterator[tuple[Step, object]]:
    """Every step of an object, with the object behind it."""
    cls = type(value)
    for name in attributes_of(cls):
        yield ("attr", name), attribute(value, name)
    if cls is types.FunctionType:
        for number, cell in enumerate(value.__closure__ or ()):
            yield ("cell", number), cell
    elif cls is types.CellType:
        contents = _contents(value)
        if contents is not _absent:
            yield ("contents", 0), contents
    elif cls is types.CodeType:
        for number, constant in enumerate(value.co_consts):
            if type(constant) is types.CodeType:
                yield ("const", number), constant
    elif issubclass(cls, type):
        for name, member in list(_class_dict(value).items()):
            yield ("class", name), member
        for number, base in enumerate(_bases(value)):
            yield ("base", number), base
    elif cls in _DICTS:
        for number, (key, item) in enumerate(list(dict.items(value))):
            yield ("key", key) if type(key) in (str, int) else ("value", number), item
    elif cls in (tuple, list):
        for number, item in enumerate(value):
            yield ("item", number), item
    if not issubclass(cls, type) and cls is not types.ModuleType:
        for name, item in list((instance_dict(value) or {}).items()):
            if type(name) is str:
                yield ("vars", name), item


def _contents(cell: Thing) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _absent
