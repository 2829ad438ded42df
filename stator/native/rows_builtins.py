"""Rows for the functions and constructors of `builtins`, and for object, type and the descriptor types.

In: the builtins module. Out: a row for each C callable in it; the methods of its container and scalar types
are in rows_containers and rows_scalars.
"""

from __future__ import annotations

import builtins
import types

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

CODE_FROM_TEXT = "runs or makes code that no source file shows"
INTERPRETED = "a frame of its own, which the interpreter runs"
ADDRESS = "shows an address, which differs from run to run"


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
