"""Rows for `builtins`: functions, constructors, and the methods of its types, their views and their iterators.

In: the builtins module and the C types behind it. Out: a row for each C callable. Each method of a mutable type is
named: one that a later Python adds is refused until somebody has read what it does. Methods of immutable types cannot
hide a mutation behind "*" (all the rest); what matters is which of them run Python through their arguments: an index,
a buffer, an iterable, a format.
"""

from __future__ import annotations

import builtins
import types
from typing import Any

from stator.native.rows_declare import (
    ATTRIBUTE_ACCESS,
    NativeClass,
    attribute_slots,
    attributes,
    deep,
    deny,
    effect,
    impure,
    is_c_type,
    iterator,
    mutates,
    pure,
    shell,
    special,
    type_of,
)

COMPARISONS = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__"
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


def _sequences() -> None:
    for owner in (list, tuple):
        attribute_slots(owner)
        deep(owner, f"{COMPARISONS} __hash__ __contains__ index count", calls_back=True, compares=True)
        deep(owner, "__repr__", calls_back=True, formats=True)
        iterator(owner, "__iter__ __reversed__", calls_back=False)
        shell(owner, "__len__ __class_getitem__")
        pure(owner, "__getitem__ __add__ __mul__ __rmul__ __getnewargs__", calls_back=True, fresh=None)
    pure(tuple, "__new__", calls_back=True, fresh=None)
    shell(list, "__new__")
    mutates(list, "__init__", calls_back=True)
    pure(list, "copy")
    shell(list, "append", mutates=True)
    # What they do depends on how many items there are: no shells, whose length nobody guards.
    mutates(list, "clear reverse")
    mutates(list, "insert __delitem__", calls_back=True)
    mutates(list, "extend __setitem__", calls_back=True)
    mutates(list, "__iadd__ __imul__ pop", calls_back=True, fresh=None)
    mutates(list, "remove sort", calls_back=True, compares=True)
    deny(list, "__sizeof__", code="SB013", why=ALLOCATION)


def _dicts() -> None:
    attribute_slots(dict)
    shell(dict, "__new__ __len__ __class_getitem__")
    mutates(dict, "__init__ update", calls_back=True, compares=True)
    mutates(dict, "__delitem__ setdefault pop __ior__", calls_back=True, compares=True, fresh=None)
    mutates(dict, "popitem", fresh=None)
    shell(dict, "__setitem__", mutates=True, calls_back=True, compares=True)
    mutates(dict, "clear")  # which keys go is a fact
    pure(dict, "get __getitem__", calls_back=True, compares=True, fresh=None)
    pure(dict, "__contains__ __or__ __ror__ fromkeys", calls_back=True, compares=True)
    pure(dict, "copy")
    deep(dict, COMPARISONS, calls_back=True, compares=True)
    deep(dict, "__repr__", calls_back=True, formats=True)
    shell(dict, "keys values items", why="a live view")
    iterator(dict, "__iter__ __reversed__", calls_back=False)
    deny(dict, "__sizeof__", code="SB013", why=ALLOCATION)


def _sets() -> None:
    for owner in (set, frozenset):
        attribute_slots(owner)
        shell(owner, "__len__ __class_getitem__")
        deny(owner, "__sizeof__", code="SB013", why=ALLOCATION)
        deep(owner, f"{COMPARISONS} __hash__", calls_back=True, compares=True)
        deep(owner, "__repr__", calls_back=True, formats=True)
        iterator(owner, "__iter__", calls_back=False)
        pure(owner, "__contains__ isdisjoint issubset issuperset", calls_back=True, compares=True)
        pure(
            owner,
            "__and__ __rand__ __or__ __ror__ __xor__ __rxor__ __sub__ __rsub__ difference intersection "
            "symmetric_difference union copy",
            calls_back=True,
            compares=True,
            fresh=True if owner is set else None,
        )
        special(owner, "__reduce__", why="hands out the instance's __dict__")
    pure(frozenset, "__new__", calls_back=True, compares=True, fresh=None)
    shell(set, "__new__")
    shell(set, "clear", mutates=True)
    mutates(set, "pop", fresh=None)
    mutates(
        set,
        "__init__ add discard remove update difference_update intersection_update symmetric_difference_update",
        calls_back=True,
        compares=True,
    )
    mutates(set, "__iand__ __ior__ __ixor__ __isub__", calls_back=True, compares=True, fresh=None)


def _buffers() -> None:
    attribute_slots(bytearray)
    shell(bytearray, "__new__ __len__ __repr__ __str__ capitalize lower upper title swapcase copy isalnum isalpha "
          "isascii isdigit islower isspace istitle isupper")  # fmt: skip
    deny(bytearray, "__sizeof__ __alloc__", code="SB013", why=ALLOCATION)
    special(bytearray, "__reduce__ __reduce_ex__", why="hands out the instance's __dict__")
    deep(bytearray, "__mod__ __rmod__", calls_back=True, formats=True)
    deep(bytearray, "join", calls_back=True)
    iterator(bytearray, "__iter__", calls_back=False)
    shell(bytearray, "clear reverse", mutates=True)
    mutates(bytearray, "__init__ append extend insert pop remove __setitem__ __delitem__ resize", calls_back=True)
    mutates(bytearray, "__iadd__ __imul__", calls_back=True, fresh=None)
    pure(
        bytearray,
        f"{COMPARISONS} __add__ __mul__ __rmul__ __contains__ __getitem__ center count decode endswith "
        "expandtabs find fromhex hex index ljust lstrip maketrans partition removeprefix removesuffix replace "
        "rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip translate zfill",
        calls_back=True,
    )
    attribute_slots(memoryview)
    shell(memoryview, "__len__ __repr__ __class_getitem__")
    pure(memoryview, f"{COMPARISONS} __new__ __getitem__ cast toreadonly", calls_back=True, fresh=None, why=PINNED)
    pure(memoryview, "__hash__ tobytes tolist hex __contains__ count index _from_flags", calls_back=True)
    iterator(memoryview, "__iter__", calls_back=False)
    mutates(memoryview, "__setitem__ __delitem__ release __enter__ __exit__", calls_back=True, fresh=None)
    attributes(memoryview, "*", NativeClass.PURE_SHELL)
    for owner in (bytes, bytearray, memoryview):
        special(owner, "__buffer__ __release_buffer__", why="keeps the memory pinned until it is released")


def _views() -> None:
    views = (type_of({}.keys()), type_of({}.items()), type_of({}.values()), types.MappingProxyType)
    for owner in views:
        attribute_slots(owner)
        shell(owner, "__len__ __class_getitem__")
        deep(owner, COMPARISONS, calls_back=True, compares=True)
        deep(owner, "__hash__", calls_back=True, compares=True)
        deep(owner, "__repr__ __str__", calls_back=True, formats=True)
        iterator(owner, "__iter__ __reversed__", calls_back=True)
        pure(owner, "__contains__ isdisjoint", calls_back=True, compares=True)
        pure(owner, "__and__ __rand__ __or__ __ror__ __xor__ __rxor__ __sub__ __rsub__", calls_back=True,
             compares=True)
        attributes(owner, "mapping", NativeClass.SPECIAL, why="hands out the mapping behind the view")
    proxy = types.MappingProxyType
    shell(proxy, "__new__", calls_back=True)
    pure(proxy, "__getitem__ get", calls_back=True, compares=True, fresh=None)
    pure(proxy, "copy", calls_back=True)
    shell(proxy, "keys values items", calls_back=True, fresh=None, why="a live view")
    deny(proxy, "__ior__", code="SB006", why="a mapping proxy refuses updates")


def declare_iterator(owner: type, calls_back: bool) -> None:
    """An iterator's own position is its only state; what it runs when advanced decides `calls_back`."""
    attribute_slots(owner)
    shell(owner, "__iter__", fresh=None, why="an iterator is its own iterator")
    mutates(owner, "__next__", calls_back=calls_back, fresh=None, why="advances itself")
    mutates(owner, "__setstate__", calls_back=True)
    shell(owner, "__length_hint__ __class_getitem__ __sizeof__", calls_back=calls_back)
    pure(owner, "__reduce__", fresh=None, calls_back=True, why="hands out what is left, and where")


def _iterators() -> None:
    class Sequence:
        def __getitem__(self, index: int) -> int:
            raise IndexError(index)

    plain = [iter([]), reversed([]), iter(()), iter({}), iter({}.values()), iter({}.items()), reversed({}),
             reversed({}.values()), reversed({}.items()), iter(set()), iter(""), iter("\u0100"), iter(b""),
             iter(bytearray()), iter(memoryview(b"")), iter(range(0)), iter(range(1 << 70))]  # fmt: skip
    for owner in dict.fromkeys(map(type, plain)):
        declare_iterator(owner, calls_back=False)
    lazy = [iter(Sequence()), iter(int, 0)]
    for owner in (*map(type, lazy), enumerate, reversed, zip, map, filter):
        declare_iterator(owner, calls_back=True)
        iterator(owner, "__new__")


def _namespaces_and_aliases() -> None:
    attribute_slots(types.SimpleNamespace)
    shell(types.SimpleNamespace, "__new__", why="its state is its __dict__")
    mutates(types.SimpleNamespace, "__init__", calls_back=True)
    deep(types.SimpleNamespace, COMPARISONS, calls_back=True, compares=True)
    deep(types.SimpleNamespace, "__repr__", calls_back=True, formats=True)
    special(types.SimpleNamespace, "__reduce__ __replace__", why="hands out the instance's __dict__")
    attributes(types.SimpleNamespace, "*", NativeClass.SPECIAL, why="hands out the instance's __dict__")

    for owner in (types.GenericAlias, types.UnionType):
        attribute_slots(owner)
        special(owner, "__call__ __instancecheck__ __subclasscheck__", why="asks the class behind the alias")
        deep(owner, f"{COMPARISONS} __hash__", calls_back=True, compares=True)
        deep(owner, "__repr__", calls_back=True, formats=True)
        pure(owner, "__new__ __getitem__ __or__ __ror__ __mro_entries__ __reduce__ __dir__ __class_getitem__",
             calls_back=True)  # fmt: skip
        iterator(owner, "__iter__")
        attributes(owner, "*", NativeClass.PURE, calls_back=True)
    alias: Any = list[int]
    declare_iterator(type_of(iter(alias)), calls_back=False)


_sequences()
_dicts()
_sets()
_buffers()
_views()
_iterators()
_namespaces_and_aliases()


def _functions() -> None:
    shell(builtins, "len", calls_back=True)
    pure(builtins, "all any bin hex oct chr", calls_back=True)
    pure(builtins, "ord")
    pure(builtins, "abs divmod pow round", calls_back=True, fresh=None)
    deep(builtins, "min max", calls_back=True, fresh=None, compares=True)
    deep(builtins, "sum", calls_back=True, fresh=None, why="adds elements, which may be containers")
    deep(builtins, "sorted", calls_back=True, compares=True)
    deep(builtins, "repr ascii format", calls_back=True, formats=True)
    effect(builtins, "print", formats=True)
    special(builtins, "getattr setattr delattr hasattr vars dir", why=ATTRIBUTE_ACCESS)
    special(builtins, "isinstance issubclass callable", why="asks about the type the program sees, with hooks")
    special(builtins, "id hash", why="the identity of a shadow is that of its original")
    special(builtins, "iter next aiter anext", why="generators and user iterators are interpreted")
    special(builtins, "locals globals", why="asks about the interpreted frame")
    special(builtins, "__build_class__ __import__", why="runs Python that must be interpreted")
    special(builtins, "eval exec", why=CODE_FROM_TEXT)
    deny(builtins, "compile", code="SB001", why=CODE_FROM_TEXT)
    deny(builtins, "open input breakpoint", code="SB015")


def _constructors() -> None:
    shell(builtins, "object slice")
    pure(builtins, "int float complex bool bytes bytearray range", calls_back=True)
    pure(builtins, "list", calls_back=True)
    pure(builtins, "tuple", calls_back=True, fresh=None, why="an exact tuple is returned as it is")
    pure(builtins, "dict set", calls_back=True, compares=True)
    pure(builtins, "frozenset", calls_back=True, compares=True, fresh=None, why="an exact frozenset is returned")
    pure(builtins, "memoryview", fresh=None, why="a window on its argument")
    deep(builtins, "str", calls_back=True, formats=True)
    iterator(builtins, "enumerate filter map reversed zip")
    special(builtins, "type super", why="the class the program sees")
    special(builtins, "property classmethod staticmethod", why="holds a function that is interpreted later")


def _exceptions() -> None:
    """All C exceptions: constructors keep their arguments, and look at them only to parse."""
    for value in dict.fromkeys(value for value in vars(builtins).values() if isinstance(value, type)):
        if not (is_c_type(value) and issubclass(value, BaseException)):
            continue
        parses = issubclass(value, (OSError, SyntaxError, UnicodeError, BaseExceptionGroup))
        facts = {"calls_back": parses, "fresh": True}
        if value.__name__ in vars(builtins) and vars(builtins)[value.__name__] is value:
            pure(builtins, value.__name__, **facts)
        pure(value, "__new__", **facts)
        mutates(value, "__init__", calls_back=parses)
        deep(value, "__repr__ __str__", calls_back=True, formats=True)
        pure(value, "__reduce__ __getstate__", fresh=None)
        mutates(value, "__setstate__ with_traceback add_note", fresh=None, calls_back=True)
        special(value, "derive split subgroup", why="calls derive and predicates written in Python")
        shell(value, "__class_getitem__")
        attribute_slots(value)
        attributes(value, "__traceback__ __context__ __cause__ __suppress_context__ __dict__",
                   NativeClass.SPECIAL, why="the interpreter keeps the exception state")
        attributes(value, "*", NativeClass.PURE_SHELL)


def _object_and_type() -> None:
    attribute_slots(object)
    shell(object, "__new__ __init__ __init_subclass__ __subclasshook__ __eq__ __lt__ __le__ __gt__ __ge__")
    shell(object, "__ne__", calls_back=True, why="asks __eq__, which may be Python")
    special(object, "__hash__", why="the identity of a shadow is that of its original")
    impure(object, "__repr__", why=ADDRESS)
    deep(object, "__str__ __format__", calls_back=True, formats=True, why="asks __repr__ or __str__")
    special(object, "__reduce__ __reduce_ex__ __getstate__ __dir__", why="hands out the instance's __dict__")
    shell(object, "__sizeof__")
    attributes(object, "*", NativeClass.SPECIAL, why="the class the program sees")

    attribute_slots(type)
    special(type, "__call__ __new__ __init__ __prepare__", why="makes instances and classes step by step")
    special(type, "__instancecheck__ __subclasscheck__ __dir__ mro", why="asks about the class the program sees")
    special(type, "__or__ __ror__", why="makes a union; a metaclass may define its own")
    special(type, "__repr__", why="names may be assigned to; read under a guard")
    deny(type, "__subclasses__", code="SB019", why="the list shrinks when a class dies")
    shell(type, "__sizeof__")
    attributes(type, "*", NativeClass.SPECIAL, why="class attributes can be assigned to; read under a guard")

    special(super, "__new__ __init__ __get__ __repr__", why=ATTRIBUTE_ACCESS)
    attribute_slots(super)
    attributes(super, "*", NativeClass.SPECIAL, why=ATTRIBUTE_ACCESS)


def _descriptors_and_functions() -> None:
    """Types whose objects bind or run Python: everything about them is a rule."""
    descriptor_types = (
        property, classmethod, staticmethod, types.WrapperDescriptorType, types.MethodDescriptorType,
        types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
        types.MethodWrapperType, types.BuiltinFunctionType, types.FunctionType, types.MethodType,
    )  # fmt: skip
    for owner in descriptor_types:
        attribute_slots(owner)
        if owner not in (types.FunctionType, types.MethodType):
            shell(owner, "__sizeof__ __reduce__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__")
        if owner is types.MethodType:
            pure(owner, "__eq__ __ne__", calls_back=True, why="compares the functions, then which objects they are of")
        special(owner, "*", why="binds or calls what it holds, which may be Python")
        attributes(owner, "*", NativeClass.SPECIAL, why=ATTRIBUTE_ACCESS)


def _suspended_frames() -> None:
    """Generators, coroutines and their helpers: interpreted frames."""

    async def make_async_generator():  # type: ignore[no-untyped-def]
        yield

    async def make_coroutine() -> None:
        pass

    coroutine, async_generator = make_coroutine(), make_async_generator()
    frames: list[type] = [types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType]
    frames += [type_of(coroutine.__await__()), type_of(async_generator.__anext__())]
    frames += [type_of(async_generator.athrow(ValueError))]
    coroutine.close()
    for owner in frames:
        attribute_slots(owner)
        special(owner, "*", why=INTERPRETED)
        attributes(owner, "*", NativeClass.SPECIAL, why=INTERPRETED)


_functions()
_constructors()
_exceptions()
_object_and_type()
_descriptors_and_functions()
_suspended_frames()


def _numbers() -> None:
    pure(int, "__new__ from_bytes to_bytes __round__", calls_back=True)
    pure(float, "__new__ fromhex __round__ from_number", calls_back=True)
    deny(float, "__setformat__", code="SB006", why="changes how the process reads floats")
    pure(complex, "__new__ from_number", calls_back=True)
    pure(bool, "__new__", calls_back=True)
    special(bool, "__invert__", why="warns that it is deprecated, since 3.12")
    for owner in (int, float, complex, bool):
        attribute_slots(owner)
        shell(owner, "*")
        attributes(owner, "*", NativeClass.PURE_SHELL, fresh=True)


def _text() -> None:
    attribute_slots(str)
    deep(str, "__new__ __mod__ __rmod__ format format_map", calls_back=True, formats=True)
    pure(str, f"join translate maketrans encode {TAKES_INDEX}", calls_back=True)
    iterator(str, "__iter__", calls_back=False)
    shell(str, "*")


def _bytes() -> None:
    attribute_slots(bytes)
    deep(bytes, "__mod__ __rmod__", calls_back=True, formats=True)
    deep(bytes, "join", calls_back=True)
    iterator(bytes, "__iter__", calls_back=False)
    shell(bytes, "__len__ __hash__ __repr__ __str__ __sizeof__ __getnewargs__ __bytes__ capitalize lower upper "
          "title swapcase isalnum isalpha isascii isdigit islower isspace istitle isupper")  # fmt: skip
    # Every other argument is a buffer or an iterable, and both may be Python.
    pure(bytes, "*", calls_back=True)


def _ranges_and_slices() -> None:
    for owner in (range, slice):
        attribute_slots(owner)
        attributes(owner, "*", NativeClass.PURE_SHELL)
    shell(slice, "__new__")
    pure(range, "__new__ __getitem__", calls_back=True)
    pure(range, f"{COMPARISONS} __contains__ count index", calls_back=True, compares=True)
    iterator(range, "__iter__ __reversed__", calls_back=False)
    shell(range, "__len__ __bool__ __hash__ __repr__ __reduce__")
    deep(slice, f"{COMPARISONS} __hash__", calls_back=True, compares=True)
    deep(slice, "__repr__", calls_back=True, formats=True)
    pure(slice, "indices", calls_back=True)
    shell(slice, "__reduce__", fresh=None)


def _singletons() -> None:
    for owner in (types.NoneType, types.EllipsisType, types.NotImplementedType):
        attribute_slots(owner)
        shell(owner, "*")


_numbers()
_text()
_bytes()
_ranges_and_slices()
_singletons()
