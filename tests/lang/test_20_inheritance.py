"""Inheritance, method resolution order and super() in all its forms."""

import abc

import torch

from curriculum import call, case, ramp


class Base:
    name = "base"

    def __init__(self, n=1):
        self.n = n

    def apply(self, x):
        return x + self.n

    @classmethod
    def make(cls, n):
        return cls(n)

    @property
    def label(self):
        return f"{self.name}:{self.n}"


class Child(Base):
    name = "child"

    def __init__(self, n):
        super().__init__(n * 2)

    def apply(self, x):
        return super().apply(x) * 3

    @classmethod
    def make(cls, n):
        made = super().make(n + 1)
        made.via = cls.__name__
        return made

    @property
    def label(self):
        return "<" + super().label + ">"


class Grandchild(Child):
    def apply(self, x):
        return super(Child, self).apply(x) - super().apply(x)


class A:
    def run(self, log):
        log.append("A")
        return log


class B(A):
    def run(self, log):
        log.append("B")
        return super().run(log)


class C(A):
    def run(self, log):
        log.append("C")
        return super().run(log)


class D(B, C):
    def run(self, log):
        log.append("D")
        return super().run(log)


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    def double(self):
        return self.area() * 2


class Square(Shape):
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side * self.side


@case(lambda: call(Child(3), ramp(2)), lambda: call(Base(3), ramp(2)), lambda: call(Grandchild(1), ramp(2)))
def virtual_call(thing, x):
    return thing.apply(x), thing.label, thing.name, isinstance(thing, Child), type(thing).__name__


@case()
def two_argument_super(x):
    return Grandchild(2).apply(x), super(Child, Child(1)).apply(x), super(Grandchild, Grandchild(1)).label


@case()
def super_in_classmethod(x):
    made = Child.make(4)
    return made.apply(x), made.via, made.n, super(Child, Child).make(1).n


@case(call(ramp(2)))
def diamond(x):
    return D().run([]), [c.__name__ for c in D.__mro__], x + len(D.mro())


@case(call(ramp(2)))
def super_in_nested_function(x):
    class Local(Base):
        def apply(self, v):
            def inner(w):
                return super(Local, self).apply(w)

            return [inner(v + i) for i in range(2)]

    return Local(5).apply(x)


@case(call(ramp(2)))
def super_in_comprehension(x):
    class Local(Base):
        def apply(self, v):
            parent = super().apply
            return [parent(v * i) for i in range(2)]

    return Local(5).apply(x)


@case(call(ramp(2)))
def zero_argument_super_in_a_comprehension_fails(x):
    class Local(Base):
        def apply(self, v):
            return [super().apply(v * i) for i in range(2)]

    return Local(5).apply(x)


@case(call(ramp(2)))
def super_attribute_and_missing(x):
    class Local(Base):
        name = "local"

        def names(self):
            return self.name, super().name, __class__.__name__

        def bad(self):
            return super().absent

    local = Local()
    try:
        local.bad()
    except AttributeError as error:
        return local.names(), str(error), x + local.n


@case(lambda: call(Square(ramp(2))), lambda: call(Square(3)))
def abstract_base(square):
    y = square.double()
    return y + torch.ones(2)


@case(call(ramp(2)))
def abstract_class_cannot_be_made(x):
    y = x + 1
    return y, Shape()


@case(call(ramp(2)))
def inconsistent_bases(x):
    y = x + 1

    class Bad(A, B):
        pass

    return y


@case(call(ramp(2)))
def mixins_with_keyword_chain(x):
    class Root:
        def __init__(self, **rest):
            self.rest = rest

    class Scale(Root):
        def __init__(self, *, scale=1, **rest):
            super().__init__(**rest)
            self.scale = scale

    class Shift(Root):
        def __init__(self, *, shift=0, **rest):
            super().__init__(**rest)
            self.shift = shift

    class Both(Scale, Shift):
        pass

    both = Both(shift=1, scale=3, other="o")
    return x * both.scale + both.shift, vars(both)


@case(call(ramp(2)))
def builtin_bases(x):
    class Numbers(list):
        def total(self):
            return sum(self)

    class Word(str):
        def shout(self):
            return self.upper() + "!"

    class Count(int):
        def __add__(self, other):
            return Count(int(self) + int(other) + 100)

    n = Numbers([1, 2])
    n.append(3)
    return n.total() + x, Word("hi").shout(), Count(1) + 2, type(Count(1) + 2).__name__, Word("a") + "b"


@case(call(ramp(2)))
def issubclass_and_bases(x):
    return issubclass(D, A), issubclass(A, D), issubclass(bool, (str, int)), D.__bases__ == (B, C), B.__base__ is A, x + 1


@case(lambda: call(D(), ramp(2)))
def method_from_a_chosen_parent(d, x):
    return C.run(d, []), A.run(d, ["x"]), super(B, d).run([]), x + 1
