"""Where an outside value came from, as plain data: how to read it again when the compiled function is called.

    self -> its __dict__ -> "n":  Key(DictOf(Local("self", 0)), "n"), whose text is `self.n`

Every step is a raw read (a dict slot, a tuple item, a cell): reading a source never runs the user's code.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from stator import _core
from stator.host.value_kinds import is_a, qualified_name_of

# nn.Module keeps its children in dicts inside its __dict__, but users write `self.linear`.
MODULE_DICTS = frozenset({"_modules", "_parameters", "_buffers"})

_store = object.__setattr__
_DETAIL = _core.Provenance.detail


class Source(_core.Provenance):
    """One step of provenance from `base` (None: a root), equal by family, base and detail, which C compares."""

    __slots__ = ()

    base: Source | None
    root: Source | None  # where the chain of bases starts; None for a root itself
    depth: int  # the number of steps from there
    detail: object  # what distinguishes this step from another of the same family on the same base
    _family: ClassVar[str] = ""
    _text: ClassVar[str]  # the text, as a format of the step and the text of its base

    def text(self) -> str:
        """The value as the user's program would write it."""
        return self._text.format(self=self, base="" if self.base is None else self.base.text())

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.text()}>"

    def __copy__(self) -> Source:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Source:
        return self


class Local(Source):
    """A bound argument of the entry; `index` is its place in the array of bound arguments."""

    __slots__ = ("name",)
    name: str
    index: int = _DETAIL
    _family, _text = "local", "{self.name}"

    def __init__(self, name: str, index: int) -> None:
        _store(self, "name", name)
        self._seal(None, index)


class Drawn(Source):
    """A random number that the residual draws before the graph runs; nothing outside holds it, no guard reads it."""

    __slots__ = ("name",)
    index: int | tuple[int, int] = _DETAIL  # the draw, or the draw and the number in what it gives
    name: str
    _family, _text = "drawn", "{self.name}() {self.index}"

    def __init__(self, index: int | tuple[int, int], name: str) -> None:
        _store(self, "name", name)
        self._seal(None, index)


class Copied(Drawn):
    """A copy of a tensor, which the residual makes before the graph runs."""

    __slots__ = ()
    _family, _text = "copied", "copy of {self.name} {self.index}"


class Pinned(Source):
    """This very object, which the entry keeps alive; a cell may be given the name of its variable."""

    __slots__ = ("obj", "variable")
    obj: Any
    variable: str | None
    _family = "pinned"

    def __init__(self, obj: object, variable: str | None = None) -> None:
        _store(self, "obj", obj)
        _store(self, "variable", variable)
        self._seal(None, id(obj))

    def text(self) -> str:
        return name_of(self.obj)


class World(Source):
    """The state of the process and of torch: what a GLOBAL_STATE guard is about."""

    __slots__ = ()
    _family, _text = "world", "torch's global state"

    def __init__(self) -> None:
        self._seal(None, None)


WORLD = World()


class _Step(Source):
    """A step that is a base alone."""

    __slots__ = ()
    base: Source

    def __init__(self, base: Source) -> None:
        self._seal(base, None)


class DictOf(_Step):
    """The instance dict of an object (not the value of a property called `__dict__`)."""

    __slots__ = ()
    _family, _text = "dict", "{base}.__dict__"


class CellOf(_Step):
    """The contents of a closure cell."""

    __slots__ = ()
    _family, _text = "cell", "{base}.cell_contents"

    def text(self) -> str:
        return _free_variable_name(self.base) or super().text()


class TypeOf(_Step):
    """The type of a value (`__class__` as the C struct has it)."""

    __slots__ = ()
    _family, _text = "type", "type({base})"


class Key(Source):
    """The value under a constant key of a dict."""

    __slots__ = ()
    base: Source
    key: Any = _DETAIL
    _family = "key"

    def __init__(self, base: Source, key: object) -> None:
        self._seal(base, key)

    def text(self) -> str:
        key, base = self.key, self.base
        if isinstance(key, str):
            if isinstance(base, DictOf):
                return f"{base.base.text()}.{key}"
            if isinstance(base, Key) and base.key in MODULE_DICTS and isinstance(base.base, DictOf):
                owner = base.base.base.text()
                return f"{owner}[{key}]" if key.isdigit() else f"{owner}.{key}"
        return f"{base.text()}[{name_of(key)}]"


class Global(Key):
    """A module-level name: a Key of the module's pinned dict that prints as the bare name."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self.key)

    def text(self) -> str:
        return self.name


class _Place(Source):
    """A step that is a base and a position in it."""

    __slots__ = ()
    base: Source
    index: int = _DETAIL

    def __init__(self, base: Source, index: int) -> None:
        self._seal(base, index)


class KeyAt(_Place):
    """The i-th key of a dict, in insertion order."""

    __slots__ = ()
    _family, _text = "key_at", "list({base})[{self.index}]"


class ValueAt(_Place):
    """The value of the i-th key of a dict, in insertion order."""

    __slots__ = ()
    _family, _text = "value_at", "list({base}.values())[{self.index}]"


class Index(_Place):
    """An item of a list, a tuple or a deque (subclasses too, read without their `__getitem__`)."""

    __slots__ = ()
    _family, _text = "index", "{base}[{self.index}]"


class SetAt(_Place):
    """The i-th element of a set or frozenset, in iteration order."""

    __slots__ = ()
    _family, _text = "set_at", "list({base})[{self.index}]"


class Slot(Source):
    """A `__slots__` member, read through the member descriptor found in `owner.__dict__[name]`."""

    __slots__ = ("name", "owner")
    base: Source
    name: str
    owner: type
    _family, _text = "slot", "{base}.{self.name}"

    def __init__(self, base: Source, name: str, owner: type) -> None:
        _store(self, "name", name)
        _store(self, "owner", owner)
        self._seal(base, (name, id(owner)))


class Attr(Source):
    """A C-level attribute of a trusted builtin type: `f.__closure__`, `m.__self__`, `s.start`, `t.grad`."""

    __slots__ = ()
    base: Source
    name: str = _DETAIL
    _family, _text = "attr", "{base}.{self.name}"

    def __init__(self, base: Source, name: str) -> None:
        self._seal(base, name)


class CallOf(Source):
    """The result of a listed pure reader, called again at every entry."""

    __slots__ = ("fn", "args")
    fn: Pinned
    args: tuple[Source, ...]
    _family = "call"

    def __init__(self, fn: Pinned, args: tuple[Source, ...] = ()) -> None:
        _store(self, "fn", fn)
        _store(self, "args", args)
        self._seal(None, (fn, args))

    def text(self) -> str:
        shown = [arg.text() for arg in self.args]
        spelling = CALL_TEXTS.get(id(self.fn.obj))
        return f"{self.fn.text()}({', '.join(shown)})" if spelling is None else spelling(*shown)


CALL_TEXTS: dict[int, Callable[..., str]] = {}  # by the id of a reader that lives on: how the program would write it


def with_base(source: Source, base: Source) -> Source:
    match source:
        case Key():
            return Key(base, source.key)
        case Slot():
            return Slot(base, source.name, source.owner)
        case _Place() | Attr():
            return type(source)(base, source.detail)  # type: ignore[arg-type]
    return type(source)(base)  # type: ignore[call-arg]  # DictOf, CellOf and TypeOf have a base alone


def parents(source: Source) -> tuple[Source, ...]:
    """The sources that must be read before this one."""
    if isinstance(source, CallOf):
        return (source.fn, *source.args)
    return () if source.base is None else (source.base,)


def root_of(source: Source) -> Source:
    """Where the chain of bases starts: a Local, a Pinned, a CallOf or the World."""
    return source.root or source


def unpinned(source: Source) -> Source:
    """A name for the same place that keeps no object alive; nothing can be read by it."""
    if type(root_of(source)) is Local:
        return source
    holder = source.base
    if isinstance(source, Key) and isinstance(holder, Key) and isinstance(holder.base, DictOf):  # a member of a module
        return Key(Key(DictOf(_nameless(holder.base.base)), holder.key), source.key)
    return _nameless(source)


def _nameless(source: Source) -> Local:
    """An argument that no call has; its negative number distinguishes sources of one text."""
    return Local(source.text(), -1 - (hash(source) & 0x7FFFFFFF))


def name_of(obj: Any) -> str:
    """The text for an object, made without running its code: a constant, a qualified name, or its type."""
    kind = type(obj)
    if kind in _PRINTED:
        shown = hex(obj) if type(obj) is int and obj.bit_length() > 64 else repr(obj)  # repr refuses very long ones
        return shown if len(shown) <= 80 else f"{shown[:77]}..."
    if kind is tuple and len(obj) <= 8:
        inside = ", ".join(name_of(item) for item in obj)
        return f"({inside},)" if len(obj) == 1 else f"({inside})"
    if is_a(obj, type):
        return str(qualified_name_of(obj))
    if kind in _NAMED:
        return str(getattr(obj, "__qualname__", None) or obj.__name__)
    if is_a(obj, enum.Enum):
        return f"{name_of(kind)}.{object.__getattribute__(obj, '__dict__').get('_name_')}"
    return f"<{type.__dict__['__name__'].__get__(kind)} object at {id(obj):#x}>"


_PRINTED = frozenset({int, bool, float, complex, str, bytes, type(None), type(...), range, slice})
# Functions, builtin functions, descriptors and modules: types whose names are read by C code alone.
_NAMED = frozenset({type(root_of), type(len), type(ClassVar), type(str.join), type(object.__init__), type(Iterator)})


def _free_variable_name(cell: Source) -> str | None:
    """The name of a free variable, when the cell was found by it or is `f.__closure__[i]` of a known function `f`."""
    match cell:
        case Pinned():
            return cell.variable
        case Index(base=Attr(name="__closure__", base=Pinned(obj=function))):
            names = getattr(getattr(function, "__code__", None), "co_freevars", ())
            return names[cell.index] if cell.index < len(names) else None
    return None
