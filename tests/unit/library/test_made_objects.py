"""Objects with constructors in C: modules, super objects, class methods of subclasses, cells; `__new__` of other classes."""

import fnmatch
import re
import types

import torch

import stator
from tests.comparison import call, same_as_eager


def outcome(action):
    try:
        return action()
    except Exception as error:
        return type(error).__name__, str(error)


class OutsideModule(types.ModuleType):
    pass


def modules(x, n):
    log = []

    class Watched(types.ModuleType):
        def __init__(self, name):
            types.ModuleType.__init__(self, name)

        def __getattribute__(self, name):
            log.append(("get", name))
            return types.ModuleType.__getattribute__(self, name)

        def __setattr__(self, name, value):
            log.append(("set", name, value))
            types.ModuleType.__setattr__(self, name, value)

        def __delattr__(self, name):
            log.append(("del", name))
            types.ModuleType.__delattr__(self, name)

    class Listed(types.ModuleType):
        __slots__ = ("q",)

        def __dir__(self):
            return ["b", "a"]

    watched, listed = Watched("watched"), Listed("listed", "doc")
    watched.foo = n
    value = watched.foo
    del watched.foo
    listed.q, listed.z = 4, n
    return x + n, log, value, dir(listed), listed.__doc__, listed.q, listed.z, outcome(lambda: watched.foo), \
        outcome(lambda: listed.missing)


def test_classes_of_modules():
    same_as_eager(modules, call(torch.ones(2), 3), call(torch.ones(2), 4))


def returned_module(x):
    module = OutsideModule("made")
    module.value, module.items = x + 1, [1]
    return module.__dict__ is vars(module), type(module), module


def test_a_module_that_leaves_is_new_in_each_call():
    same_as_eager(lambda x: vars(returned_module(x)[2]), call(torch.ones(2)), call(torch.zeros(2)))
    compiled = stator.compile(returned_module, backend="eager", fullgraph=True)
    for start in (0.0, 1.0, 2.0):
        same_dict, cls, module = compiled(torch.full((2,), start))
        assert same_dict and cls is type(module) is OutsideModule and torch.equal(module.value, torch.full((2,), start + 1))
        assert module.items == [1] and not hasattr(module, "left")
        module.left = module.items.append(2)


def supers(x, n):
    seen = []

    class Super(super):
        def __init__(self, *args):
            seen.append(len(args))
            return super(Super, self).__init__(*args)

    class Plain(super):
        pass

    class A:
        def name(self, a):
            return f"A({a})"

    class B(A):
        def name(self, a):
            return f"B({a})" + Super(B, self).name(a)

    class C(B):
        def name(self, a):
            found = self.__above
            return f"C({a})[{found.__class__.__name__}]" + found.name(a)
    C._C__above = Super(C)

    class D(A):
        def name(self, a):
            found = Plain.__new__(Plain)
            found.__init__()
            return "D" + found.name(a)

    seen += [B().name(n), C().name(n), D().name(n)]
    seen += [outcome(lambda: super(B, 42)), outcome(lambda: super(B, A())), outcome(lambda: super(B).__get__(12)),
             outcome(lambda: Super(B, 3)), outcome(lambda: Plain()), outcome(lambda: Super(B, B()).__self__ is not None)]
    return x * n, seen


def test_subclasses_of_super():
    same_as_eager(supers, call(torch.ones(2), 3), call(torch.ones(2), 4))


def holders(x, n):
    class Marked(classmethod):
        def __init__(self, function):
            function.mark = n
            super().__init__(function)

    class Static(staticmethod):
        def __init__(self, function):
            function.mark = n + 1
            super().__init__(function)

    class Both:
        @Marked
        def one(cls):
            return cls.__name__

        @Static
        def two():
            return n

    return x + n, Both.one(), Both().one(), Both.two(), Both().two(), vars(Both)["one"].__func__.mark, \
        vars(Both)["two"].__name__


def test_subclasses_of_classmethod():
    same_as_eager(holders, call(torch.ones(2), 3), call(torch.ones(2), 4))


def cells(x, n):
    def cell(value):
        def function():
            return value
        return function.__closure__[0]

    class Unordered:
        def method(self):
            return n

    empty = types.CellType()
    return x * n, [
        cell(2) < cell(3), cell(-36) == cell(-36.0), cell(True) > empty, empty < cell("s"), cell(-5) >= empty,
        empty == types.CellType(), cell(n) != cell(n + 1), outcome(lambda: cell(1) < cell("a")),
        outcome(lambda: cell(1) < 1), outcome(lambda: Unordered().method < Unordered().method),
        types.AsyncGeneratorType[int, n], types.CoroutineType[int, n, 3]]


def test_cells_and_aliases():
    same_as_eager(cells, call(torch.ones(2), 3), call(torch.ones(2), 4))


def constructors(x, n):
    seen = []

    class Refuses:
        def __new__(cls, *args):
            raise AssertionError

    class Restored(Refuses):
        __new__ = object.__new__

        def __init__(self, value):
            self.value = value

    seen.append(outcome(lambda: Restored(n).value))
    for base, new in ((object, list.__new__), (list, object.__new__), (dict, object.__new__), (object, int.__new__)):
        class Other(base):
            __new__ = new
        seen.append(outcome(lambda: isinstance(Other(), base)))  # noqa: B023

    class Method:
        @classmethod
        def __new__(*args):
            return len(args), args[0] is args[1]

    class Inherits(Method):
        pass

    return x + n, seen, Method(1, 2), Inherits(n)


def test_constructors_of_other_classes():
    same_as_eager(constructors, call(torch.ones(2), 3), call(torch.ones(2), 4))


def subscripts(x, n):
    class Hidden(tuple):
        __class_getitem__ = None

    class Base:
        def __class_getitem__(cls, item):
            return item, n

    class HidesBase(Base):
        __class_getitem__ = None

    class Inherits(Base):
        pass

    class Text(Base):
        __class_getitem__ = "text"

    return x + n, [outcome(lambda each=each: each[int]) for each in (Hidden, Base, HidesBase, Inherits, Text, int, list)]


def test_class_getitem_that_is_none():
    same_as_eager(subscripts, call(torch.ones(2), 3), call(torch.ones(2), 4))


OUTSIDE = re.compile("a+").match


def bound_methods(x, text, given):
    made, other = re.compile("b+").match, re.compile("c").search
    return x + 1, bool(made(text)), bool(given(text)), bool(OUTSIDE(text)), list(map(bool, map(given, [text, "b"]))), \
        made.__name__, given.__self__.pattern, made.__self__.pattern, other.__self__.flags, \
        re.sub(r"[a-z]+", "<\\g<0>>", text), re.compile(r"([a])").sub(r"\1\1", text), fnmatch.fnmatch(text, "*a*")


def test_methods_that_know_their_class():
    """`pattern.match` is of another C type than most bound C functions."""
    first, second = re.compile("a+"), re.compile("z")
    same_as_eager(bound_methods, call(torch.ones(2), "aab", first.match), call(torch.ones(2), "zab", second.match),
                  call(torch.ones(2), "bba", first.match))


def test_a_method_that_leaves():
    compiled = stator.compile(lambda x, p: (re.compile(p).match, x + 1), backend="eager", fullgraph=True)
    for pattern, text in (("a", "a"), ("b", "b"), ("a", "a")):
        found, moved = compiled(torch.ones(2), pattern)
        assert found(text) and not found("-") and found.__self__.pattern == pattern and torch.equal(moved, torch.full((2,), 2.0))


def test_a_cache_of_patterns():
    def program(x, name):
        fnmatch._compile_pattern.cache_clear()
        return x + 1, fnmatch.filter([name, "zz"], "*z"), fnmatch.fnmatchcase(name, "a*"), fnmatch.fnmatchcase(name, "a*")
    same_as_eager(program, call(torch.ones(2), "az"), call(torch.ones(2), "ba"), fullgraph=False)
