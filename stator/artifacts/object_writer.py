"""Objects of Stator that entries hold, as data.   a source, a residual, a break's continuation  ->  data

In: sources, plain records, functions with closures, text that was executed.  Out: data for `made_objects.py`.  Classes
and code objects are those of the running Stator: the data has their names alone.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import linecache
import sys
import types
import weakref
from typing import Any

from torch import fx

from stator.artifacts.code_content import code_hash
from stator.artifacts.container import Json
from stator.artifacts.made_objects import RESIDUAL, codes_at, is_empty, of_stator
from stator.artifacts.raw_steps import Thing
from stator.artifacts.value_writer import NotPortable, ValueWriter, is_content
from stator.emit.residual.eager_calls import EagerEntry
from stator.emit.residual.residual import checked_once
from stator.emit.resume.advance import Advance, Points
from stator.graph.fx.graph_modules import TEXT
from stator.host.value_kinds import is_a
from stator.interp.frame import Place
from stator.source import Pinned, Source

_FIRST_CALL = next(each for each in checked_once.__code__.co_consts if getattr(each, "co_name", "") == "first_call")


class Describer(ValueWriter):
    """Write entries and all objects that they hold."""

    def __init__(self, root: types.FunctionType) -> None:
        super().__init__(root)
        self.advances: dict[int, Advance] = {}  # by the id of what the trampoline calls
        self.makes(self._source)
        self.makes(self._continuation)
        self.makes(self._function)
        self.makes(self._weak)
        self.makes(self._node)
        self.makes(self._record)

    def _source(self, value: Thing) -> Json:
        if not is_a(value, Source):
            return None
        parts: list[Any] = [getattr(value, name) for name in slots_of(type(value))]
        if type(value) is Pinned:
            held: Json = self.value(value.obj) if is_content(value.obj) and type(value.obj) is not types.CodeType \
                else ["o", self.number(value.obj)]
            return ["source", "Pinned", held, value.variable]
        base = [] if value.base is None else [self.value(value.base)]
        return ["source", type(value).__name__, *base, *[self.value(part) for part in parts]]

    def _continuation(self, value: Thing) -> Json:
        advance = value if type(value) is Advance else self.advances.get(id(value))
        if advance is not None:
            return ["advance", [self.value(state) for state in advance.states], advance.handled,
                    advance.step is not None, bool(advance.callers), self.value(advance.event)]
        if type(value) is EagerEntry:
            return ["eager entry", self.value(value.event), self.value(value.expected)]
        return None

    def _function(self, value: Thing) -> Json:
        if type(value) is not types.FunctionType:
            return None
        code = value.__code__
        if code is _FIRST_CALL:  # a compiled graph that was never called
            cells = dict(zip(code.co_freevars, value.__closure__ or (), strict=True))
            return ["same", self.value(cells["compiled"].cell_contents)]
        text = value.__globals__.get(TEXT)
        if code.co_filename.startswith(RESIDUAL):
            if (lines := linecache.cache.get(code.co_filename)) is None:  # the program has cleared that cache
                raise NotPortable("a residual program whose text is no longer in linecache")
            text = "".join(lines[2])  # type: ignore[misc]
        if type(text) is str:
            names = {name: self.value(item) for name, item in value.__globals__.items()
                     if name not in (TEXT, "__builtins__", code.co_name) and item is not value
                     and not (type(item) is types.FunctionType and item.__globals__ is value.__globals__)}
            kind = "residual" if code.co_filename.startswith(RESIDUAL) else code.co_filename
            return ["text", kind, code.co_name, text, names]
        module = sys.modules.get(value.__module__ or "")
        if "<locals>" not in value.__qualname__ or module is None or module.__name__.split(".")[0] != "stator":
            return None
        path = path_of_code(module, code)
        contents: list[Json] = [[] if is_empty(cell) else [self.value(cell.cell_contents)]
                                for cell in value.__closure__ or ()]
        return ["closure", module.__name__, path, code_hash(code), contents, self.value(value.__defaults__),
                self.value(value.__kwdefaults__), self.value(dict(value.__dict__))]

    def _weak(self, value: Thing) -> Json:
        if type(value) is not weakref.ref or value.__callback__ is not None or (held := value()) is None:
            return None
        return ["weak", self.value(held)]

    def _node(self, value: Thing) -> Json:
        """A node that stands for a value, as a key of some table."""
        return ["node", value.name] if type(value) is fx.Node else None

    def _record(self, value: Thing) -> Json:
        cls = type(value)
        if cls is functools.partial:
            return ["partial", self.value(value.func), self.value(value.args), self.value(value.keywords)]
        if cls is types.MethodType and of_stator(type(value.__self__)):
            return ["method", self.value(value.__self__), value.__func__.__name__]
        if is_a(value, (enum.Enum, type, types.ModuleType, types.FunctionType)) or not of_stator(cls) \
                or is_a(value, Points):
            return None
        if is_a(value, tuple):
            return ["named tuple", cls.__module__, path_of_class(cls), [self.value(item) for item in tuple(value)]]
        if cls is Place:  # a function that has moved has other lines
            return ["place", self.value(value.code), self.value(value.namespace), value.lasti,
                    value.line - value.code.co_firstlineno]
        if dataclasses.is_dataclass(value) or hasattr(value, "__dict__") or hasattr(cls, "__slots__"):
            return ["record", cls.__module__, path_of_class(cls),
                    [[name, self.value(getattr(value, name))] for name in fields_of(value)]]
        return None


def slots_of(cls: type) -> list[str]:
    """The fields of a kind of source, in the order of its `__init__`."""
    return [name for name in cls.__init__.__code__.co_varnames[1:cls.__init__.__code__.co_argcount]  # type: ignore
            if name != "base"]


def fields_of(value: Thing) -> list[str]:
    if dataclasses.is_dataclass(value):
        return [each.name for each in dataclasses.fields(value)]
    slots = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ()) if name != "__weakref__"]
    return [name for name in [*slots, *getattr(value, "__dict__", ())] if name not in ("__dict__",)
            and hasattr(value, name)]


def path_of_class(cls: type) -> str:
    """The name of a class of Stator in its module; some classes show another one in graphs."""
    known = vars(sys.modules[cls.__module__])
    return next((name for name, value in known.items() if value is cls), cls.__qualname__)


def path_of_code(module: types.ModuleType, code: types.CodeType) -> list[Json]:
    """Names of the functions around a code object; raises where they do not lead to it."""
    path = code.co_qualname.replace(".<locals>", "").split(".")
    if code not in codes_at(module, path):
        raise NotPortable(f"the function {code.co_qualname} of {module.__name__}")
    return [*path]
