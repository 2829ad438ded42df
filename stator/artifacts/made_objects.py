"""Objects that are made anew in another process.   a source, a residual, a break's continuation  <->  data

In: objects of Stator that entries hold: sources, plain records, functions with closures, text that was executed.
Out: data (`Describer`), and from the data equal objects (`Restorer`).  Classes and code objects are those of the
running Stator: the data has their names alone.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import linecache
import sys
import types
from collections.abc import Callable
from typing import Any

from torch import fx

from stator.artifacts.code_content import code_hash
from stator.artifacts.container import Json
from stator.artifacts.raw_steps import Data, Thing, steps_of
from stator.artifacts.value_reader import Stale, ValueReader, module_named
from stator.artifacts.value_writer import NotPortable, ValueWriter, is_content
from stator.breaks import Break
from stator.emit.residual.eager_calls import EagerEntry
from stator.emit.residual.residual import checked_once
from stator.emit.resume.advance import Advance, Points
from stator.graph.fx.graph_modules import TEXT
from stator.host.value_kinds import is_a
from stator.interp.frame import Place
from stator.source import Pinned, Source, World

RESIDUAL = "<stator residual"
_FIRST_CALL = next(each for each in checked_once.__code__.co_consts if getattr(each, "co_name", "") == "first_call")
Note = Callable[[object], None]


def of_stator(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "stator"


class Describer(ValueWriter):
    """Write entries and all objects that they hold."""

    def __init__(self, root: types.FunctionType) -> None:
        super().__init__(root)
        self.advances: dict[int, Advance] = {}  # by the id of what the trampoline calls
        self.makes(self._source)
        self.makes(self._continuation)
        self.makes(self._function)
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
            text = "".join(linecache.cache[code.co_filename][2])  # type: ignore[misc]
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
            return ["named tuple", cls.__module__, cls.__qualname__, [self.value(item) for item in tuple(value)]]
        if cls is Place:  # a function that has moved has other lines
            return ["place", self.value(value.code), self.value(value.namespace), value.lasti,
                    value.line - value.code.co_firstlineno]
        if dataclasses.is_dataclass(value) or hasattr(value, "__dict__") or hasattr(cls, "__slots__"):
            return ["record", cls.__module__, cls.__qualname__,
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


def is_empty(cell: Thing) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def path_of_code(module: types.ModuleType, code: types.CodeType) -> list[Json]:
    """Names of the functions around a code object; raises where they do not lead to it."""
    path = code.co_qualname.replace(".<locals>", "").split(".")
    if code not in codes_at(module, path):
        raise NotPortable(f"the function {code.co_qualname} of {module.__name__}")
    return [*path]


def codes_at(module: types.ModuleType, path: list[str]) -> list[types.CodeType]:
    """The code objects of a module under these names."""
    found: list[Any] = [module.__dict__.get(path[0])]
    for name in path[1:]:
        found = [item for each in found for item in inner_codes(each, name)]
    return [each.__code__ if type(each) is types.FunctionType else each for each in found]


def inner_codes(holder: Thing, name: str) -> list[Any]:
    while hasattr(holder, "__wrapped__"):  # a decorator of the standard library
        holder = holder.__wrapped__
    if is_a(holder, type):
        member = holder.__dict__.get(name)
        return [getattr(member, "__func__", member)]
    code = holder.__code__ if type(holder) is types.FunctionType else holder
    if type(code) is not types.CodeType:
        return []
    return [each for _, each in steps_of(code) if each.co_name == name]  # type: ignore[attr-defined]


class Restorer(ValueReader):
    """Make the objects of a file again; `points` are the resume points of the compile() call that loads it."""

    def __init__(self, rows: list[list[Json]], root: types.FunctionType, points: Points) -> None:
        super().__init__(rows, root)
        self.points = points
        self.advances: dict[int, Advance] = {}  # by the id of what the trampoline calls
        for kind, make in (("source", self._source), ("advance", self._advance), ("eager entry", self._eager_entry),
                           ("same", self._same), ("text", self._text), ("closure", self._closure),
                           ("node", self._node), ("partial", self._partial), ("method", self._method),
                           ("record", self._record), ("place", self._place), ("named tuple", self._named_tuple)):
            self.made_by(kind, make)

    def _source(self, data: Data, note: Note) -> object:
        module = sys.modules[Source.__module__]
        cls: Thing = getattr(module, data[0])
        if cls is World:
            return module.WORLD  # type: ignore[attr-defined]
        return cls(*[self.value(part) for part in data[1:]])

    def _advance(self, data: Data, note: Note) -> object:
        states, handled, alone, asks_caller, event = data
        stop = Break("SB001", whole_frame=not alone, asks_caller=asks_caller)
        found = [self.value(state) for state in states]
        advance = Advance(self.points, found, handled, stop, self.value(event))
        self.advances[id(advance.target)] = advance
        return advance.target

    def _eager_entry(self, data: Data, note: Note) -> object:
        made = EagerEntry("", "", None, None, self.value(data[1]) if data[1] is None else None)
        made.event, made.expected = self.value(data[0]), self.value(data[1])
        return made

    def _same(self, data: Data, note: Note) -> object:
        return self.value(data[0])

    def _text(self, data: Data, note: Note) -> object:
        kind, name, text, names = data
        return made_from_text(kind, name, text, {key: self.value(item) for key, item in names.items()})

    def _closure(self, data: Data, note: Note) -> object:
        module, path, digest, cells, defaults, keywords, own = data
        owner = module_named(module)
        code = next((each for each in codes_at(owner, path) if code_hash(each) == digest), None)
        if code is None:
            raise Stale(f"the function {'.'.join(path)} of {module} has changed")
        made = tuple([types.CellType() for _ in cells])
        function = types.FunctionType(code, owner.__dict__, code.co_name, self.value(defaults), made or None)
        note(function)
        function.__kwdefaults__ = self.value(keywords)
        function.__dict__.update(self.value(own))
        for cell, contents in zip(made, cells, strict=True):
            if contents:
                cell.cell_contents = self.value(contents[0])
        return function

    def _node(self, data: Data, note: Note) -> object:
        return fx.Graph().placeholder(data[0])

    def _partial(self, data: Data, note: Note) -> object:
        function, args, keywords = map(self.value, data)
        return functools.partial(function, *args, **keywords)

    def _method(self, data: Data, note: Note) -> object:
        return getattr(self.value(data[0]), data[1])

    def _record(self, data: Data, note: Note) -> object:
        module, path, parts = data
        cls = class_named(module, path)
        made = cls.__new__(cls)
        note(made)
        for name, value in parts:
            object.__setattr__(made, name, self.value(value))
        return made

    def _named_tuple(self, data: Data, note: Note) -> object:
        return class_named(data[0], data[1])(*[self.value(item) for item in data[2]])

    def _place(self, data: Data, note: Note) -> object:
        code, namespace, lasti, line = data
        found = self.value(code)
        return Place(found, self.value(namespace), lasti, line + found.co_firstlineno)


def class_named(module: str, path: str) -> Thing:
    """A class of Stator."""
    cls: Thing = module_named(module)
    for name in path.split("."):
        cls = cls.__dict__.get(name) if is_a(cls, type) else getattr(cls, name, None)
    if not isinstance(cls, type) or not of_stator(cls):
        raise Stale(f"there is no class {path} in {module}")
    return cls


def made_from_text(kind: str, name: str, text: str, names: dict[str, Any]) -> Thing:
    """Execute text that Stator has generated in the process that wrote it."""
    filename = f"{RESIDUAL} {id(names):x}>" if kind == "residual" else kind
    names[TEXT] = text
    exec(compile(text, filename, "exec"), names)  # noqa: S102  generated by Stator, under the signature of the file
    if kind == "residual":
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    return names[name]
