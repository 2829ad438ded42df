"""Rows for `builtins`: functions, constructors, and the methods of its types, their views and their iterators.

Each method of a mutable type is named: one that a later Python adds is refused.  "*" are all others of immutable types;
what matters is which of them run Python through their arguments: an index, a buffer, an iterable, a format.
"""

from __future__ import annotations

import _tokenize
import builtins
import types
from typing import Any

from stator.native import rows_declare as row

owner: type
ALLOCATION = "depends on how the object grew, which a shadow does not share"
PINNED = "its value is a window on memory that may change under it"
CODE_FROM_TEXT = "runs or makes code that no source file shows"
INTERPRETED = "a frame of its own, which the interpreter runs"
ADDRESS = "shows an address, which differs from run to run"
# Text and bytes share their methods; these take numbers, which may come from a Python __index__.
TAKES_INDEX = (
    "__getitem__ __mul__ __rmul__ center ljust rjust zfill expandtabs split rsplit replace splitlines "
    "find rfind index rindex count startswith endswith"
)

# Sequences.
for owner in (list, tuple):
    row.compared_and_shown(owner, "__contains__ index count")
    row.iterator(owner, "__iter__ __reversed__", calls_back=False)
    row.shell(owner, "__len__ __class_getitem__")
    row.pure(owner, "__getitem__ __add__ __mul__ __rmul__ __getnewargs__", calls_back=True, fresh=None)
row.pure(tuple, "__new__", calls_back=True, fresh=None)
row.shell(list, "__new__")
row.mutates(list, "__init__", calls_back=True)
row.pure(list, "copy")
row.shell(list, "append", mutates=True)
# What they do depends on how many items there are: no shells, whose length nobody guards.
row.mutates(list, "clear reverse")
row.mutates(list, "insert __delitem__", calls_back=True)
row.mutates(list, "extend __setitem__", calls_back=True)
row.mutates(list, "__iadd__ __imul__ pop", calls_back=True, fresh=None)
row.mutates(list, "remove sort", calls_back=True, compares=True)
row.deny(list, "__sizeof__", code="SB013", why=ALLOCATION)

# Dicts.
row.shell(dict, "__new__ __len__ __class_getitem__")
row.mutates(dict, "__init__ update", calls_back=True, compares=True)
row.mutates(dict, "__delitem__ setdefault pop __ior__", calls_back=True, compares=True, fresh=None)
row.mutates(dict, "popitem", fresh=None)
row.shell(dict, "__setitem__", mutates=True, calls_back=True, compares=True)
row.mutates(dict, "clear")  # which keys go is a fact
row.pure(dict, "get __getitem__", calls_back=True, compares=True, fresh=None)
row.pure(dict, "__contains__ __or__ __ror__ fromkeys", calls_back=True, compares=True)
row.pure(dict, "copy")
row.compared_and_shown(dict)
row.shell(dict, "keys values items", why="a live view")
row.iterator(dict, "__iter__ __reversed__", calls_back=False)
row.deny(dict, "__sizeof__", code="SB013", why=ALLOCATION)

# Sets.
for owner in (set, frozenset):
    row.shell(owner, "__len__ __class_getitem__")
    row.deny(owner, "__sizeof__", code="SB013", why=ALLOCATION)
    row.compared_and_shown(owner)
    row.iterator(owner, "__iter__", calls_back=False)
    row.pure(owner, "__contains__ isdisjoint issubset issuperset", calls_back=True, compares=True)
    row.pure(owner, "__and__ __rand__ __or__ __ror__ __xor__ __rxor__ __sub__ __rsub__ difference "
             "intersection symmetric_difference union copy", calls_back=True, compares=True,
             fresh=True if owner is set else None)
    row.special(owner, "__reduce__", why="hands out the instance's __dict__")
row.pure(frozenset, "__new__", calls_back=True, compares=True, fresh=None)
row.shell(set, "__new__")
row.shell(set, "clear", mutates=True)
row.mutates(set, "pop", fresh=None)
row.mutates(set, "__init__ add discard remove update difference_update intersection_update "
            "symmetric_difference_update", calls_back=True, compares=True)
row.mutates(set, "__iand__ __ior__ __ixor__ __isub__", calls_back=True, compares=True, fresh=None)

# Buffers.
row.shell(bytearray, "__new__ __len__ __repr__ __str__ capitalize lower upper title swapcase copy isalnum "
          "isalpha isascii isdigit islower isspace istitle isupper")
row.deny(bytearray, "__sizeof__ __alloc__", code="SB013", why=ALLOCATION)
row.special(bytearray, "__reduce__ __reduce_ex__", why="hands out the instance's __dict__")
row.deep(bytearray, "__mod__ __rmod__", calls_back=True, formats=True)
row.deep(bytearray, "join", calls_back=True)
row.iterator(bytearray, "__iter__", calls_back=False)
row.shell(bytearray, "clear reverse", mutates=True)
row.mutates(bytearray, "__init__ append extend insert pop remove __setitem__ __delitem__ resize", calls_back=True)
row.mutates(bytearray, "__iadd__ __imul__", calls_back=True, fresh=None)
row.pure(
    bytearray,
    f"{row.COMPARISONS} __add__ __mul__ __rmul__ __contains__ __getitem__ center count decode endswith "
    "expandtabs find fromhex hex index ljust lstrip maketrans partition removeprefix removesuffix replace "
    "rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip translate zfill",
    calls_back=True,
)
row.shell(memoryview, "__len__ __repr__ __class_getitem__")
row.pure(memoryview, f"{row.COMPARISONS} __new__ __getitem__ cast toreadonly", calls_back=True, fresh=None, why=PINNED)
row.pure(memoryview, "__hash__ tobytes tolist hex __contains__ count index _from_flags", calls_back=True)
row.iterator(memoryview, "__iter__", calls_back=False)
row.mutates(memoryview, "__setitem__ __delitem__ release __enter__ __exit__", calls_back=True, fresh=None)
row.attributes(memoryview, "*", row.NativeClass.PURE_SHELL)
for owner in (bytes, bytearray, memoryview):
    row.special(owner, "__buffer__ __release_buffer__", why="keeps the memory pinned until it is released")

# Views.
views = (row.type_of({}.keys()), row.type_of({}.items()), row.type_of({}.values()), types.MappingProxyType)
for owner in views:
    row.shell(owner, "__len__ __class_getitem__")
    row.compared_and_shown(owner)
    row.deep(owner, "__str__", calls_back=True, formats=True)
    row.iterator(owner, "__iter__ __reversed__", calls_back=True)
    row.pure(owner, "__contains__ isdisjoint", calls_back=True, compares=True)
    row.pure(owner, "__and__ __rand__ __or__ __ror__ __xor__ __rxor__ __sub__ __rsub__", calls_back=True, compares=True)
    row.attributes(owner, "mapping", row.NativeClass.SPECIAL, why="hands out the mapping behind the view")
proxy = types.MappingProxyType
row.shell(proxy, "__new__", calls_back=True)
row.pure(proxy, "__getitem__ get", calls_back=True, compares=True, fresh=None)
row.pure(proxy, "copy", calls_back=True)
row.shell(proxy, "keys values items", calls_back=True, fresh=None, why="a live view")
row.deny(proxy, "__ior__", code="SB006", why="a mapping proxy refuses updates")


def declare_iterator(owner: type, calls_back: bool) -> None:
    """An iterator's own position is its only state; what it runs when advanced decides `calls_back`."""
    row.shell(owner, "__iter__", fresh=None, why="an iterator is its own iterator")
    row.mutates(owner, "__next__", calls_back=calls_back, fresh=None, why="advances itself")
    warns = owner.__module__ == "itertools"
    row.mutates(owner, "__setstate__", calls_back=True, warns=warns)
    row.shell(owner, "__length_hint__ __class_getitem__ __sizeof__", calls_back=calls_back)
    row.pure(owner, "__reduce__", fresh=None, calls_back=True, warns=warns, why="hands out what is left, and where")


def _iterators() -> None:
    class Sequence:
        def __getitem__(self, index: int) -> int:
            raise IndexError(index)

    plain = [iter([]), reversed([]), iter(()), iter({}), iter({}.values()), iter({}.items()), reversed({}),
             reversed({}.values()), reversed({}.items()), iter(set()), iter(""), iter("\u0100"), iter(b""),
             iter(bytearray()), iter(memoryview(b"")), iter(range(0)), iter(range(1 << 70))]
    for owner in dict.fromkeys(map(type, plain)):
        declare_iterator(owner, calls_back=False)
    lazy = [iter(Sequence()), iter(int, 0)]
    tokens: type = getattr(_tokenize, "TokenizerIter")
    for owner in (*map(type, lazy), enumerate, reversed, zip, map, filter, tokens):
        declare_iterator(owner, calls_back=True)
        row.iterator(owner, "__new__")


_iterators()

# Namespaces and aliases.
row.shell(types.SimpleNamespace, "__new__", why="its state is its __dict__")
row.mutates(types.SimpleNamespace, "__init__", calls_back=True)
row.compared_and_shown(types.SimpleNamespace)
row.special(types.SimpleNamespace, "__reduce__ __replace__", why="hands out the instance's __dict__")
row.attributes(types.SimpleNamespace, "*", row.NativeClass.SPECIAL, why="hands out the instance's __dict__")

for owner in (types.GenericAlias, types.UnionType):
    row.special(owner, "__call__ __instancecheck__ __subclasscheck__", why="asks the class behind the alias")
    row.compared_and_shown(owner)
    row.pure(owner, "__new__ __getitem__ __or__ __ror__ __mro_entries__ __reduce__ __dir__ "
             "__class_getitem__", calls_back=True)
    row.iterator(owner, "__iter__")
    row.attributes(owner, "*", row.NativeClass.PURE, calls_back=True)
alias: Any = list[int]
declare_iterator(row.type_of(iter(alias)), calls_back=False)

# Functions.
row.shell(builtins, "len", calls_back=True)
row.pure(builtins, "all any bin hex oct chr", calls_back=True)
row.pure(builtins, "ord")
row.pure(builtins, "abs divmod pow round", calls_back=True, fresh=None)
row.deep(builtins, "min max", calls_back=True, fresh=None, compares=True)
row.deep(builtins, "sum", calls_back=True, fresh=None, why="adds elements, which may be containers")
row.deep(builtins, "sorted", calls_back=True, compares=True)
row.deep(builtins, "repr ascii format", calls_back=True, formats=True)
row.effect(builtins, "print", formats=True)
row.special(builtins, "getattr setattr delattr hasattr vars dir", why=row.ATTRIBUTE_ACCESS)
row.special(builtins, "isinstance issubclass callable", why="asks about the type the program sees, with hooks")
row.special(builtins, "id hash", why="the identity of a shadow is that of its original")
row.special(builtins, "iter next aiter anext", why="generators and user iterators are interpreted")
row.special(builtins, "locals globals", why="asks about the interpreted frame")
row.special(builtins, "__build_class__ __import__", why="runs Python that must be interpreted")
row.special(builtins, "eval exec compile", why=CODE_FROM_TEXT)
row.deny(builtins, "open input breakpoint", code="SB015")

# Constructors.
row.shell(builtins, "object slice")
row.pure(builtins, "int float complex bool bytes bytearray range", calls_back=True)
row.pure(builtins, "list", calls_back=True)
row.pure(builtins, "tuple", calls_back=True, fresh=None, why="an exact tuple is returned as it is")
row.pure(builtins, "dict set", calls_back=True, compares=True)
row.pure(builtins, "frozenset", calls_back=True, compares=True, fresh=None, why="an exact frozenset is returned")
row.pure(builtins, "memoryview", fresh=None, why="a window on its argument")
row.deep(builtins, "str", calls_back=True, formats=True)
row.iterator(builtins, "enumerate filter map reversed zip")
row.special(builtins, "type super", why="the class the program sees")
row.special(builtins, "property classmethod staticmethod", why="holds a function that is interpreted later")

# Exceptions: all C exceptions: constructors keep their arguments, and look at them only to parse.
for value in dict.fromkeys(value for value in vars(builtins).values() if isinstance(value, type)):
    if not (row.is_c_type(value) and issubclass(value, BaseException)):
        continue
    parses = issubclass(value, (OSError, SyntaxError, UnicodeError, BaseExceptionGroup))
    facts = {"calls_back": parses, "fresh": True}
    if value.__name__ in vars(builtins) and vars(builtins)[value.__name__] is value:
        row.pure(builtins, value.__name__, **facts)
    row.pure(value, "__new__", **facts)
    row.mutates(value, "__init__", calls_back=parses)
    row.deep(value, "__repr__ __str__", calls_back=True, formats=True)
    row.pure(value, "__reduce__ __getstate__", fresh=None)
    row.mutates(value, "__setstate__ with_traceback add_note", fresh=None, calls_back=True)
    row.special(value, "derive split subgroup", why="calls derive and predicates written in Python")
    row.shell(value, "__class_getitem__")
    row.attributes(value, "__traceback__ __context__ __cause__ __suppress_context__ __dict__",
                   row.NativeClass.SPECIAL, why="the interpreter keeps the exception state")
    row.attributes(value, "*", row.NativeClass.PURE_SHELL)

# Object and type.
row.shell(object, "__new__ __init__ __init_subclass__ __subclasshook__ __eq__ __lt__ __le__ __gt__ __ge__")
row.shell(object, "__ne__", calls_back=True, why="asks __eq__, which may be Python")
row.special(object, "__hash__", why="the identity of a shadow is that of its original")
row.impure(object, "__repr__", why=ADDRESS)
row.deep(object, "__str__ __format__", calls_back=True, formats=True, why="asks __repr__ or __str__")
row.special(object, "__reduce__ __reduce_ex__ __getstate__ __dir__", why="hands out the instance's __dict__")
row.shell(object, "__sizeof__")
row.attributes(object, "*", row.NativeClass.SPECIAL, why="the class the program sees")

row.special(type, "__call__ __new__ __init__ __prepare__", why="makes instances and classes step by step")
row.special(type, "__instancecheck__ __subclasscheck__ __dir__ mro", why="asks about the class the program sees")
row.special(type, "__or__ __ror__", why="makes a union; a metaclass may define its own")
row.special(type, "__repr__", why="names may be assigned to; read under a guard")
row.deny(type, "__subclasses__", code="SB019", why="the list shrinks when a class dies")
row.shell(type, "__sizeof__")
row.attributes(type, "*", row.NativeClass.SPECIAL, why="class attributes can be assigned to; read under a guard")

row.special(super, "__new__ __init__ __get__ __repr__", why=row.ATTRIBUTE_ACCESS)
row.attributes(super, "*", row.NativeClass.SPECIAL, why=row.ATTRIBUTE_ACCESS)

# Descriptors and functions: types whose objects bind or run Python: everything about them is a rule.
descriptor_types = (
    property, classmethod, staticmethod, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.MethodWrapperType, types.BuiltinFunctionType, types.FunctionType, types.MethodType,
)
for owner in descriptor_types:
    if owner not in (types.FunctionType, types.MethodType):
        row.shell(owner, "__sizeof__ __reduce__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__")
    if owner is types.MethodType:
        row.shell(owner, "__lt__ __le__ __gt__ __ge__")
        row.pure(owner, "__eq__ __ne__", calls_back=True, why="compares functions, then identities of receivers")
    row.special(owner, "*", why="binds or calls what it holds, which may be Python")
    row.attributes(owner, "*", row.NativeClass.SPECIAL, why=row.ATTRIBUTE_ACCESS)


def _suspended_frames() -> None:
    """Generators, coroutines and their helpers: interpreted frames."""

    async def make_async_generator():  # type: ignore[no-untyped-def]
        yield

    async def make_coroutine() -> None:
        pass

    coroutine, async_generator = make_coroutine(), make_async_generator()
    frames: list[type] = [types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType]
    for step in (coroutine.__await__(), async_generator.__anext__(), async_generator.athrow(ValueError)):
        frames.append(row.type_of(step))
        step.close()  # type: ignore[attr-defined]
    for owner in frames:
        if "__class_getitem__" in vars(owner):
            row.pure(owner, "__class_getitem__", calls_back=True)
        row.special(owner, "*", why=INTERPRETED)
        row.attributes(owner, "*", row.NativeClass.SPECIAL, why=INTERPRETED)


_suspended_frames()

# Numbers.
row.pure(int, "__new__ from_bytes to_bytes __round__", calls_back=True)
row.pure(float, "__new__ fromhex __round__ from_number", calls_back=True)
row.deny(float, "__setformat__", code="SB006", why="changes how the process reads floats")
row.pure(complex, "__new__ from_number", calls_back=True)
row.pure(bool, "__new__", calls_back=True)
row.special(bool, "__invert__", why="warns that it is deprecated, since 3.12")
for owner in (int, float, complex, bool):
    row.shell(owner, "*")
    row.attributes(owner, "*", row.NativeClass.PURE_SHELL, fresh=True)

# Text.
row.deep(str, "__new__ __mod__ __rmod__ format format_map", calls_back=True, formats=True)
row.pure(str, f"join translate maketrans encode {TAKES_INDEX}", calls_back=True)
row.iterator(str, "__iter__", calls_back=False)
row.shell(str, "*")

# Bytes.
row.deep(bytes, "__mod__ __rmod__", calls_back=True, formats=True)
row.deep(bytes, "join", calls_back=True)
row.iterator(bytes, "__iter__", calls_back=False)
row.shell(bytes, "__len__ __hash__ __repr__ __str__ __sizeof__ __getnewargs__ __bytes__ capitalize lower "
          "upper title swapcase isalnum isalpha isascii isdigit islower isspace istitle isupper")
# Every other argument is a buffer or an iterable, and both may be Python.
row.pure(bytes, "*", calls_back=True)

# Ranges and slices.
for owner in (range, slice):
    row.attributes(owner, "*", row.NativeClass.PURE_SHELL)
row.shell(slice, "__new__")
row.pure(range, "__new__ __getitem__", calls_back=True)
row.pure(range, f"{row.COMPARISONS} __contains__ count index", calls_back=True, compares=True)
row.iterator(range, "__iter__ __reversed__", calls_back=False)
row.shell(range, "__len__ __bool__ __hash__ __repr__ __reduce__")
row.compared_and_shown(slice)
row.pure(slice, "indices", calls_back=True)
row.shell(slice, "__reduce__", fresh=None)

# Singletons.
for owner in (types.NoneType, types.EllipsisType, types.NotImplementedType):
    row.shell(owner, "*")
