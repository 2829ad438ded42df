"""Descriptors: data and non-data, __set_name__, lookup order."""

import functools
import re
import types
import warnings

import pytest
import torch

import stator
from curriculum import call, case, ramp


class Typed:
    def __init__(self, kind):
        self.kind = kind

    def __set_name__(self, owner, name):
        self.name = name
        self.owner = owner.__name__

    def __get__(self, instance, owner):
        if instance is None:
            return self
        return instance.__dict__[self.name]

    def __set__(self, instance, value):
        if not isinstance(value, self.kind):
            raise TypeError(f"{self.owner}.{self.name} wants {self.kind.__name__}, got {type(value).__name__}")
        instance.__dict__[self.name] = value

    def __delete__(self, instance):
        instance.__dict__[self.name] = None


class NonData:
    def __get__(self, instance, owner=None):
        return "from the class", owner.__name__, instance is None


class ReadOnly:
    def __get__(self, instance, owner):
        return 42

    def __set__(self, instance, value):
        raise AttributeError("read-only")


class Lazy:
    def __init__(self, fn):
        self.fn = fn

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner):
        value = instance.__dict__[self.name] = self.fn(instance)
        return value


class Layer:
    width = Typed(int)
    weight = Typed(torch.Tensor)
    hint = NonData()
    answer = ReadOnly()

    def __init__(self, width, weight):
        self.width = width
        self.weight = weight
        self.computed = 0

    @Lazy
    def scaled(self):
        self.computed += 1
        return self.weight * self.width


@case(lambda: call(Layer(2, ramp(2))), lambda: call(Layer(3, ramp(4))))
def data_descriptor(layer):
    layer.width = layer.width + 1
    return layer.weight * layer.width


@case(lambda: call(Layer(2, ramp(2)), "wide"), lambda: call(Layer(2, ramp(2)), 5))
def data_descriptor_refuses(layer, width):
    y = layer.weight + 1
    layer.width = width
    return y


@case(lambda: call(Layer(2, ramp(2))))
def non_data_descriptor(layer):
    before = layer.hint
    layer.hint = "own"
    return before, layer.hint, Layer.hint, layer.weight + 1


@case(lambda: call(Layer(2, ramp(2))))
def data_descriptor_wins_over_the_instance(layer):
    layer.__dict__["answer"] = 1
    try:
        layer.answer = 2
    except AttributeError as error:
        return layer.answer, str(error), layer.weight * 2


@case(lambda: call(Layer(2, ramp(2))))
def delete(layer):
    y = layer.weight * 2
    del layer.weight
    return y, layer.weight, layer.__dict__["weight"]


@case(lambda: call(Layer(2, ramp(2))))
def lazy_attribute(layer):
    return layer.scaled + layer.scaled, layer.computed


@case(call(ramp(2)))
def read_through_the_class(x):
    return Layer.width.name, Layer.width.owner, type(Layer.answer).__name__, x + 1


@case(call(ramp(2)))
def set_name_on_a_local_class(x):
    named = []

    class Field:
        def __set_name__(self, owner, name):
            named.append((owner.__name__, name))

    class Record:
        a = Field()
        b = Field()

    Record.c = Field()
    return named, x + len(named)


@case(call(ramp(2)))
def functions_are_descriptors(x):
    def add(self, v):
        return v + self

    bound = add.__get__(10)
    return bound(x), bound.__self__, add.__get__(None, int) is add, type(bound).__name__


@case(call(ramp(2)))
def descriptor_raising_attribute_error_falls_to_getattr(x):
    class Missing:
        def __get__(self, instance, owner):
            raise AttributeError("gone")

    class Holder:
        field = Missing()

        def __getattr__(self, name):
            return f"fallback {name}"

    return Holder().field, Holder().other, x + 1


@case(call(ramp(2)))
def bound_to_instances_apart(x):
    class Slot:
        def __init__(self):
            self.values = {}

        def __get__(self, instance, owner):
            return self.values.get(instance.key, 0)

        def __set__(self, instance, value):
            self.values[instance.key] = value

    class Node:
        value = Slot()

        def __init__(self, key):
            self.key = key

    a, b = Node("a"), Node("b")
    a.value = x
    b.value += 3
    return a.value + b.value


@case(call(ramp(2)))
def set_name_error(x):
    y = x + 1

    class Bad:
        def __set_name__(self, owner, name):
            raise ValueError(f"no name {name}")

    class Holder:
        field = Bad()

    return y


class Undecided:
    def __bool__(self):
        raise ValueError("undecided")


class Asks:
    __isabstractmethod__ = Undecided()

    def __call__(self, owner):
        return 3


@case()
def abstract_or_not(x):
    def plain(self):
        return 1

    plain.__isabstractmethod__ = [1]
    found = property(plain).__isabstractmethod__
    try:
        property(Asks()).__isabstractmethod__
    except ValueError as error:
        return x + 1, found, str(error)


def arguments_of(*args, **named):
    return [type(each).__name__ for each in args], sorted(named)


class Bound:
    def __get__(self, instance, owner=None):
        return "bound", instance, owner

    def __call__(self, *args):
        return args


@case(call(ramp(2)), call(ramp(3)))
def class_methods_of_descriptors(x):
    class Made:
        held = classmethod(functools.partial(arguments_of, 1, a=2))
        bound = classmethod(Bound())
        looked_up = classmethod(property(lambda cls: cls.__name__))
        of_c = classmethod(str.upper)

    found = [Made.held(3, b=4), Made().held(b=4)]
    for read in (lambda: Made.bound, lambda: Made().bound, lambda: Made.looked_up, lambda: Made.of_c):
        try:
            value = read()
            found.append(value if type(value) is not types.MethodType else (type(value.__func__), value.__self__ is Made))
            found[-1] = [*map(str, found[-1])] if type(found[-1]) is tuple else found[-1]
        except TypeError as error:
            found.append(str(error))
    return found, x + 1


def read_partial(n):
    class Made:
        held = functools.partial(arguments_of, n)

    made = Made()
    return made.held(3), Made.held(4), functools.partial(arguments_of).__get__(None, Made)()  # since 3.13


@pytest.mark.skipif(not hasattr(functools.partial, "__get__"), reason="functools.partial is no descriptor before 3.13")
def test_partials_on_classes_warn_or_bind():
    def outcomes_of(fn):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            result = fn(1), fn("text")
        return result, [(each.category, str(each.message), each.filename, each.lineno) for each in told]

    compiled = stator.compile(read_partial, backend="eager", fullgraph=True)
    assert outcomes_of(compiled) == outcomes_of(compiled) == outcomes_of(read_partial)


class Counted:
    def count(self, *args):
        return len(args)


class HoldsMethod:
    held = Counted().count


@case(call(ramp(2)), call(ramp(3)))
def bound_methods_on_classes(x):
    class Made:
        held = Counted().count
        of_class = classmethod(Counted().count)

    found = [Made().held(2), Made.held(3), HoldsMethod().held(4), HoldsMethod.held(5), Made.of_class(1), Made().of_class()]
    method = Counted().count
    if hasattr(type(method), "__get__"):  # since 3.13
        found += [method.__get__(3) == method, method.__get__(None, int) == method]
        try:
            method.__get__(None)
        except TypeError as error:
            found.append(str(error))
    return found, repr(re.I | re.A), x + 1
