"""The verbs of the native table.

    shell(list, "append clear", mutates=True)   ->   ROWS[id(list.append)] = Row(list.append, PURE_SHELL, ...)

In: an owner (a module or a C type) and names.  Out: rows keyed by the object itself; missing names are skipped.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from stator.breaks import REGISTRY
from stator.errors import InternalError

MethodDescriptor = types.MethodDescriptorType
SlotWrapper = types.WrapperDescriptorType
ClassMethodDescriptor = types.ClassMethodDescriptorType
BuiltinFunction = types.BuiltinFunctionType
C_CALLABLES = (MethodDescriptor, SlotWrapper, ClassMethodDescriptor, BuiltinFunction)
C_ATTRIBUTES = (types.GetSetDescriptorType, types.MemberDescriptorType)

# PyInstanceMethod_Type has no name in Python; pybind11 keeps its methods in objects of it.
INSTANCE_METHOD: type = type(vars(torch._C.DispatchKeySet)["raw_repr"])
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_NO_CONSTRUCTOR = 1 << 7  # Py_TPFLAGS_DISALLOW_INSTANTIATION
ATTRIBUTE_ACCESS = "attribute access follows the attribute rules"
COMPARISONS = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__"
ROWS: dict[int, Row] = {}  # by id; each row holds its object, so an id cannot come to mean another object
NAMES: dict[int, str] = {}  # where each object was found, for the documentation and for messages


class NativeClass(enum.Enum):
    """Reads and effects of a native callable, which decide over the steps before and after its call."""

    PURE_SHELL = "sees only identity, type and length of its arguments, never their elements"
    PURE = "sees its arguments and the direct elements of containers"
    PURE_DEEP = "may see anything reachable from its arguments"
    MUTATES = "as PURE, and changes its first argument, which must be a shadow or fresh"
    OUTSIDE_REF = "returns a reference to something outside, which must be adopted"
    EFFECT = "has an effect that is recorded and replayed after the graph"
    IMPURE_READ = "reads what changes from call to call; breaks"
    WRAPPER = "stateful wrapper around a callable; what it wraps is interpreted"
    ITERATOR = "makes a lazy iterator over its arguments; callbacks come later"
    SPECIAL = "needs a rule of the interpreter; without one it breaks"
    DENY = "known and refused"


@dataclass(frozen=True, slots=True)
class Row:
    """One C callable (or C attribute descriptor) and how the interpreter may use it."""

    obj: Any
    cls: NativeClass
    calls_back: bool = False  # may run Python code through its arguments (__eq__, __index__, key functions)
    fresh: bool | None = None  # True: new or immutable; None: maybe an argument or a part; False: outside
    code: str = ""  # the break code of a refused class
    why: str = ""
    mutates: bool = False  # changes its first argument; also set on PURE_SHELL rows such as list.append
    compares: bool = False  # hashes, compares or orders what it sees: containers inside must be filled through
    formats: bool = False  # makes text of values: a default repr inside would bake in an address
    warns: bool = False  # C code may warn: of a method that is deprecated
    depends: Any = None  # answers, to the strings among the arguments, for what else its result depends on; guarded
    # Below: what rows_arguments adds.
    calls_at: int = -1  # position of the argument that it calls
    asks_items: bool = False  # compares or calls through the items of what it is given
    shows_order: bool = False  # its result follows the order of a set that it is given
    shows_lines: bool = False  # its result depends on the path or the lines of a code object
    orderless: bool = False  # of a set it looks at one member alone
    copies: bool = False  # copies containers without looking at their items
    stores: bool = False  # stores a value without looking at it
    pairs_at: int = -1  # position of an iterable of pairs, whose keys it hashes
    takes_key: bool = False  # hashes its second argument
    hashes_items: bool = False  # hashes the items of what it is given
    hashes_walked: bool = False  # hashes the values that a view of a dict gives it
    makes_number: bool = False  # converts its argument to a Python number
    slot: str = ""  # special method of a tensor that it calls
    asks_modes: bool | None = None  # whether torch asks a mode about it; None: where it gets a tensor


_REFUSED = (NativeClass.IMPURE_READ, NativeClass.DENY)


def owner_name(owner: Any) -> str:
    if isinstance(owner, types.ModuleType):
        return owner.__name__
    module = owner.__module__
    return owner.__qualname__ if module == "builtins" else f"{module}.{owner.__qualname__}"


def underlying(value: Any) -> Any:
    """The object that a call finally reaches: C static methods and pybind11 methods are kept in a wrapper."""
    wrapped = isinstance(value, staticmethod) or type(value) is INSTANCE_METHOD
    return value.__func__ if wrapped else value


def add(obj: object, name: str, cls: NativeClass, facts: dict[str, Any]) -> None:
    """Add one row; declaring one object twice is a mistake in the table."""
    code = facts.get("code", "")
    if (cls in _REFUSED) != bool(code):
        raise InternalError(f"{name}: a break code belongs to refused classes, and to all of them")
    if code and code not in REGISTRY:
        raise InternalError(f"{name}: break code {code} is not registered")
    if id(obj) in ROWS:
        raise InternalError(f"{name} has a row already, as {NAMES[id(obj)]}")
    ROWS[id(obj)] = Row(obj, cls, **facts)
    NAMES[id(obj)] = name


def is_c_type(value: object) -> bool:
    """Whether `value` is a class made by C code: a static type, or a heap type that owns C slots."""
    if not isinstance(value, type):
        return False
    if not value.__flags__ & _HEAP_TYPE:
        return True
    for entry in vars(value).values():
        if isinstance(entry, (MethodDescriptor, SlotWrapper)) and entry.__objclass__ is value:
            return True
        if isinstance(entry, INSTANCE_METHOD) or (isinstance(entry, BuiltinFunction) and entry.__self__ is value):
            return True
    return False


def c_members(owner: object) -> Iterator[tuple[str, Any]]:
    """Every C callable and C attribute that a module or a type owns, with constructible C types."""
    for name, raw in list(vars(owner).items()):
        value = underlying(raw)
        if isinstance(value, C_CALLABLES):
            yield name, value
        elif isinstance(value, C_ATTRIBUTES):
            # `__dict__` and `__weakref__` of a Python class are not the C type's own.
            if isinstance(owner, type):
                yield name, value
        elif isinstance(owner, types.ModuleType) and is_c_type(value) and not value.__flags__ & _NO_CONSTRUCTOR:
            yield name, value


def optional_module(name: str) -> types.ModuleType:
    """The module, or an empty one where this Python or this machine lacks it: then it has no rows."""
    return types.ModuleType(name) if importlib.util.find_spec(name) is None else importlib.import_module(name)


def type_of(value: object) -> type:
    """The C type of an example value: the only way to reach the types that no module exports."""
    return type(value)


def _names(owner: object, names: str, wanted: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    if names == "*":
        for name, value in c_members(owner):
            if isinstance(value, wanted) and id(value) not in ROWS:
                yield name, value
        return
    entries = vars(owner)
    for name in names.split():
        value = underlying(entries.get(name))
        # A subclass may say `__hash__ = None`, and a name may be Python code on another version.
        if isinstance(value, wanted) and (not isinstance(value, type) or is_c_type(value)):
            yield name, value


def declare(owner: object, names: str, cls: NativeClass, facts: dict[str, Any]) -> None:
    """Rows for the named C callables of a module or type; "*" means all that have no row yet."""
    for name, value in _names(owner, names, (*C_CALLABLES, type)):
        add(value, f"{owner_name(owner)}.{name}", cls, facts)


def also(owner: object, names: str, **facts: Any) -> None:
    """Add facts to rows that there are."""
    for _, value in _names(owner, names, (*C_CALLABLES, type)):
        ROWS[id(value)] = replace(ROWS[id(value)], **facts)


def attributes(owner: type, names: str, cls: NativeClass, **facts: object) -> None:
    """Rows for C attributes (getset and member descriptors) of a type; "*" means all the others."""
    for name, value in _names(owner, names, C_ATTRIBUTES):
        add(value, f"{owner_name(owner)}.{name}", cls, facts)


def declare_slots(owner: type) -> None:
    """Slots through which attributes are read and written: always a matter of the attribute rules."""
    for name in ("__getattribute__", "__setattr__", "__delattr__"):
        if id(vars(owner).get(name)) not in ROWS:
            declare(owner, name, NativeClass.SPECIAL, {"calls_back": True, "why": ATTRIBUTE_ACCESS})


class Declarer:
    """Makes rows of one class: `pure(math, "sin cos")`; facts given in the call override the defaults."""

    def __init__(self, cls: NativeClass, **defaults: object) -> None:
        self.cls = cls
        self.defaults = defaults

    def __call__(self, owner: object, names: str, **facts: object) -> None:
        if isinstance(owner, type) and self.cls not in _REFUSED:
            declare_slots(owner)
        declare(owner, names, self.cls, {**self.defaults, **facts})

    def whole_type(self, owner: type, **facts: object) -> None:
        """All that the type owns and has no row yet, its attributes too."""
        declare_slots(owner)
        self(owner, "*", **facts)
        attributes(owner, "*", self.cls, **{**self.defaults, **facts})

    def whole_module(self, module: types.ModuleType, **facts: object) -> None:
        """All that the module and its C types own and has no row yet."""
        self(module, "*", **facts)
        for value in list(vars(module).values()):
            if is_c_type(value):
                self.whole_type(value, **facts)


shell = Declarer(NativeClass.PURE_SHELL, fresh=True)
pure = Declarer(NativeClass.PURE, fresh=True)
deep = Declarer(NativeClass.PURE_DEEP, fresh=True)
mutates = Declarer(NativeClass.MUTATES, fresh=True, mutates=True)
outside = Declarer(NativeClass.OUTSIDE_REF, fresh=False)
effect = Declarer(NativeClass.EFFECT, fresh=True, calls_back=True)
impure = Declarer(NativeClass.IMPURE_READ, fresh=True, code="SB013")
wrapper = Declarer(NativeClass.WRAPPER, calls_back=True)
iterator = Declarer(NativeClass.ITERATOR, fresh=True, calls_back=True)
special = Declarer(NativeClass.SPECIAL, calls_back=True)
deny = Declarer(NativeClass.DENY)


def compared_and_shown(owner: type, more: str = "") -> None:
    """Methods that call the items of a container to compare, hash or show themselves; `more`: others that compare."""
    deep(owner, f"{COMPARISONS} __hash__ {more}", calls_back=True, compares=True)
    deep(owner, "__repr__", calls_back=True, formats=True)
