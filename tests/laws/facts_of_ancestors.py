"""Probes: facts that follow from a class's ancestors and names, which can be assigned between calls."""

from __future__ import annotations

import abc
import typing

from probing import Scene, probe, ramp
from scenery import one


class Family:
    """Classes of one scene: K descends from A, and from B after the change."""

    def __init__(self):
        class A:
            def scale(self, x):
                return x + 1

            def __add__(self, other):
                return "A.__add__"

            def __radd__(self, other):
                return "A.__radd__"

            def __eq__(self, other):
                return "A.__eq__"

            def __lt__(self, other):
                return "A.__lt__"

            __hash__ = None

        class B(A):
            def scale(self, x):
                return x * 10

            def __radd__(self, other):
                return "B.__radd__"

            def __gt__(self, other):
                return "B.__gt__"

        class Root:
            """Of Root."""

        class K(A, Root):
            def scale(self, x):
                return super().scale(x) + super(K, self).scale(x)

        class First(Exception):
            pass

        class Second(Exception):
            pass

        class Error(First):
            pass

        self.A, self.B, self.Root, self.K, self.k = A, B, Root, K, K()
        self.First, self.Second, self.Error = First, Second, Error

    def move(self):
        self.K.__bases__ = self.B, self.Root
        self.Error.__bases__ = (self.Second,)


def asked(question):
    family = Family()
    return Scene(lambda x: (x + 1, question(family, x)), one(ramp()), family.move)


@probe()
def instance_of_a_new_ancestor():
    return asked(lambda of, x: (isinstance(of.k, of.B), isinstance(of.k, (int, of.B)), of.B.__instancecheck__(of.k)))


@probe()
def subclass_of_a_new_ancestor():
    return asked(lambda of, x: (issubclass(of.K, of.B), of.B.__subclasscheck__(of.K)))


@probe()
def ancestor_that_leaves():
    family = Family()
    return Scene(lambda x: x * 2 if isinstance(family.k, family.A) else x, one(ramp()),
                 lambda: setattr(family.K, "__bases__", (family.Root,)))


@probe()
def ancestor_of_an_ancestor():
    class Old:
        pass

    class New(Old):
        pass

    class Parent(Old):
        pass

    class K(Parent):
        pass

    k = K()
    return Scene(lambda x: (x + 1, isinstance(k, New), issubclass(K, New)), one(ramp()), lambda: setattr(Parent, "__bases__", (New,)))


@probe()
def super_after_the_bases_change():
    return asked(lambda of, x: of.k.scale(x))


@probe()
def handler_after_the_bases_change():
    def caught(of, x):
        try:
            raise of.Error
        except of.Second:
            return "second"
        except of.First:
            return "first"

    return asked(caught)


@probe()
def handler_of_groups_after_the_bases_change():
    def caught(of, x):
        seen = []
        try:
            raise ExceptionGroup("two", [of.Error(), ExceptionGroup("one", [of.Error()])])
        except* of.Second:
            seen.append("second")
        except* of.First:
            seen.append("first")
        return seen

    return asked(caught)


@probe()
def reflected_operator_after_the_bases_change():
    family = Family()
    family.a = family.A()
    return Scene(lambda x: (x + 1, family.a + family.k, family.a < family.k), one(ramp()), family.move)


@probe()
def class_pattern_after_the_bases_change():
    def matched(of, x):
        match of.k:
            case of.B():
                return "B"
            case of.A():
                return "A"

    return asked(matched)


@probe()
def class_made_inside_of_one_that_moves():
    def made(of, x):
        class Inner(of.K):
            pass

        return isinstance(Inner(), of.B), issubclass(Inner, of.B), [each.__name__ for each in Inner.__mro__]

    return asked(made)


@probe()
def order_of_ancestors():
    return asked(lambda of, x: ([each.__name__ for each in of.K.__mro__], of.K.mro()[1].__name__))


@probe()
def bases_of_a_class():
    return asked(lambda of, x: (of.K.__bases__, of.K.__base__))


@probe()
def bases_that_leave_the_order_as_it_was():
    class Root:
        pass

    class A(Root):
        pass

    class K(A):
        pass

    return Scene(lambda x: (x + 1, len(K.__bases__)), one(ramp()), lambda: setattr(K, "__bases__", (A, Root)))


@probe()
def name_of_a_class():
    family = Family()
    return Scene(lambda x: (x + 1, family.K.__name__, type(family.k).__name__), one(ramp()),
                 lambda: setattr(family.K, "__name__", "Renamed"))


@probe()
def qualified_name_of_a_class():
    family = Family()
    return Scene(lambda x: (x + 1, family.K.__qualname__), one(ramp()), lambda: setattr(family.K, "__qualname__", "Renamed"))


@probe()
def module_of_a_class():
    family = Family()
    return Scene(lambda x: (x + 1, family.K.__module__), one(ramp()), lambda: setattr(family.K, "__module__", "elsewhere"))


@probe()
def text_about_a_class():
    family = Family()
    return Scene(lambda x: (x + 1, family.Root.__doc__), one(ramp()), lambda: setattr(family.Root, "__doc__", "Another."))


@probe()
def abstract_methods_of_a_class():
    family = Family()
    return Scene(lambda x: (x + 1, getattr(family.K, "__abstractmethods__", None)), one(ramp()),
                 lambda: setattr(family.K, "__abstractmethods__", frozenset("a")))


def tried(make):
    try:
        return type(make()).__name__
    except TypeError as error:
        return str(error)


@probe()
def abstract_class_that_can_be_made_later():
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...

    return Scene(lambda x: (x + 1, tried(Shape)), one(ramp()), lambda: setattr(Shape, "__abstractmethods__", frozenset()))


@probe()
def class_that_is_abstract_later():
    class Shape(abc.ABC):
        pass

    return Scene(lambda x: (x + 1, tried(Shape)), one(ramp()), lambda: setattr(Shape, "__abstractmethods__", frozenset({"area"})))


@probe()
def annotations_of_a_class():
    class K:
        a: int

    return Scene(lambda x: (x + 1, list(K.__annotations__)), one(ramp()), lambda: setattr(K, "__annotations__", {"b": 1}))


@probe("SB006")
def annotations_that_reading_makes():
    class K:
        pass

    return Scene(lambda x: (x + 1, len(K.__annotations__)), one(ramp()), lambda: setattr(K, "__annotations__", {"b": 1}))


@probe()
def names_of_an_object_whose_class_grows():
    family = Family()
    return Scene(lambda x: (x + 1, "late" in dir(family.k)), one(ramp()), lambda: setattr(family.Root, "late", 1))


@probe()
def protocol_with_a_data_member():
    @typing.runtime_checkable
    class Named(typing.Protocol):
        name: str

        def go(self, x): ...

    class Thing:
        name = "b"

    thing, _ = Thing(), Thing.__annotations__  # which 3.12 makes as it asks a protocol
    return Scene(lambda x: (x + 1, isinstance(thing, Named)), one(ramp()), lambda: setattr(Thing, "go", lambda self, x: x))


@probe()
def class_registered_with_a_protocol():
    @typing.runtime_checkable
    class Named(typing.Protocol):
        name: str

    class Thing:
        pass

    thing, _ = Thing(), Thing.__annotations__  # which 3.12 makes as it asks a protocol
    return Scene(lambda x: (x + 1, isinstance(thing, Named)), one(ramp()), lambda: Named.register(Thing))


@probe()
def arguments_that_a_call_unpacks():
    class K:
        def __call__(self, *args):
            return args

        def named(self, *args):
            return args

    k = K()

    def own(*args):
        return args

    def fn(x, t):
        return x + 1, own(*t) is t, k(*t) is t, k.named(*t) is t, (lambda *a: a)(*t) is t, own(*t[:0]) is t[:0], own(*t) == t

    return Scene(fn, lambda: (ramp(), (1, "a")))
