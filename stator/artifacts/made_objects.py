"""Objects that are made anew in another process.   data  ->  a source, a residual, a break's continuation

In: data of `object_writer.py`.  Out: objects equal to those that entries held in the process that wrote it.  Parts of
the tracer are imported where the data needs them, which is behind a graph break alone.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import sys
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import fx

from stator.artifacts.code_content import code_hash
from stator.artifacts.container import Json
from stator.artifacts.raw_steps import Data, Thing, steps_of
from stator.artifacts.value_reader import Stale, ValueReader, module_named
from stator.breaks import Break
from stator.graph.fx.graph_modules import TEXT
from stator.host.lazy_imports import load
from stator.host.value_kinds import is_a
from stator.source import Source, World

if TYPE_CHECKING:
    from stator.emit.resume.advance import Advance, Points

RESIDUAL = "<stator residual"
_NUMBERS = itertools.count(1)
_ADVANCE, _EAGER, _FRAME = "stator.emit.resume.advance", "stator.emit.residual.eager_calls", "stator.interp.frame"
Note = Callable[[object], None]


def is_own(module: str) -> bool:
    return module.split(".")[0] == "stator"


def of_stator(cls: type) -> bool:
    return is_own(cls.__module__)


def is_empty(cell: Thing) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def call_own(module: str, path: str, *args: object, **named: object) -> object:
    """Call a function of Stator; its module is loaded first."""
    return getattr(load(module), path)(*args, **named)


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
    """Make the objects of a file again; `points` are the resume points of the compile() call that loads it.

    They are None until a call needs the tracer: an entry without breaks is restored without it.
    """

    def __init__(self, rows: list[list[Json]], root: types.FunctionType, points: Points | None = None) -> None:
        super().__init__(rows, root)
        self.points = points
        self.advances: dict[int, Advance] = {}  # by the id of what the trampoline calls
        for kind, make in (("source", self._source), ("advance", self._advance), ("eager entry", self._eager_entry),
                           ("same", self._same), ("text", self._text), ("closure", self._closure),
                           ("weak", self._weak), ("node", self._node), ("partial", self._partial),
                           ("method", self._method), ("record", self._record), ("place", self._place),
                           ("named tuple", self._named_tuple)):
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
        advance: Advance = load(_ADVANCE).Advance(self.points, found, handled, stop, self.value(event))
        self.advances[id(advance.target)] = advance
        return advance.target

    def _eager_entry(self, data: Data, note: Note) -> object:
        made: Thing = load(_EAGER).EagerEntry("", "", None, None, self.value(data[1]) if data[1] is None else None)
        made.event, made.expected = self.value(data[0]), self.value(data[1])
        return made

    def _same(self, data: Data, note: Note) -> object:
        return self.value(data[0])

    def _text(self, data: Data, note: Note) -> object:
        kind, name, text, names = data
        return made_from_text(kind, name, text, {key: self._named(item) for key, item in names.items()})

    def _named(self, item: Data) -> object:
        """Resolve a name of a text; a function of Stator that is not loaded yet loads at its first call."""
        if type(item) is list and item[0] == "o":
            row: Data = self.rows[item[1]]
            (kind, *name), facts = row
            if kind == "qualified" and is_own(name[0]) and name[0] not in sys.modules \
                    and facts is not None and facts[0] == "function" and len(facts) == 3:
                return functools.partial(call_own, *name)
        return self.value(item)

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

    def _weak(self, data: Data, note: Note) -> object:
        return weakref.ref(self.value(data[0]))

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
        return load(_FRAME).Place(found, self.value(namespace), lasti, line + found.co_firstlineno)


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
    filename = f"{RESIDUAL} stored {next(_NUMBERS)}>" if kind == "residual" else kind
    names[TEXT] = text
    exec(compile(text, filename, "exec"), names)  # noqa: S102  generated by Stator, under the signature of the file
    if kind == "residual":
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    return names[name]
