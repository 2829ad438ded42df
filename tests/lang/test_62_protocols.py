"""Corners of Python's protocols: slots set to other methods, class checks, iterators, formats, frames of tracebacks."""

import collections
import collections.abc
import itertools
import sys

from curriculum import case, ramp


def ending(function, *args):
    """The value of a call, or its exception as text."""
    try:
        return function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@case()
def setattr_that_is_setitem(x):
    class Record(dict):
        __setattr__ = dict.__setitem__
        __delattr__ = dict.__delitem__
        __getattr__ = dict.__getitem__
        __neg__ = dict.copy

    record = Record()
    record.y, record.z = 42, 3
    del record.z
    return x * record.y, dict(record), -record, ending(lambda: record.z)


@case()
def hooks_that_are_descriptors(x):
    class Hook:
        count = 0

        def __get__(self, obj, owner=None):
            def answer(*args):
                self.count += 1
                if args[0] != "known":
                    raise AttributeError(args[0])
                return self.count
            return answer

    hook = Hook()

    class First:
        __getattribute__ = hook

    class Second:
        __getattr__ = __setattr__ = __delattr__ = hook

    class Both:
        __getattribute__ = __getattr__ = hook

    second = Second()
    second.known = 1
    del second.known
    return (x + First().known, ending(lambda: First().other), second.known, hasattr(Both(), "other"), Both().known,
            ending(setattr, second, "other", 1), hook.count)


@case()
def attributes_of_classes(x):
    class Own:
        pass

    class Meta(type):
        @property
        def shown(cls):
            return 1

        @shown.deleter
        def shown(cls):
            cls.gone = True

    class Made(metaclass=Meta):
        pass

    del Made.shown
    return x + Made.gone, [ending(*call) for call in (
        (object.__setattr__, str, "foo", 1), (object.__delattr__, str, "lower"), (object.__setattr__, Own, "a", 1),
        (setattr, int, "real", 1), (delattr, int, "foo"), (delattr, Own, "__qualname__"), (delattr, Own, "other"),
        (setattr, Own, 1, 2), (type.__getattribute__, list, type), (object.__getattribute__, 1, 2),
        (hasattr, Own, 1), (type, "Own", 1, {}), (type, "Own", (), 1), (type, 1, (), {}))]


@case()
def properties_that_refuse(x):
    class Named:
        a = property()

        @property
        def b(self):
            return 2

    Named.c = property()
    named = Named()
    return x * named.b, [ending(getattr, named, name) for name in "abc"], [
        ending(setattr, named, name, 1) for name in "abc"], [ending(delattr, named, name) for name in "abc"]


@case()
def attributes_that_are_read_only(x):
    class Slotted:
        __slots__ = ("a",)
        y = 0

    slotted = Slotted()
    return x + slotted.y, [ending(setattr, slotted, name, 1) for name in "ayz"], [
        ending(delattr, slotted, name) for name in "ayz"]


@case()
def refused_writes_and_the_names_in_their_errors(x):
    class Slotted:
        __slots__ = ("a",)
        y = 0

    class Open:
        pass

    def named(function, obj, *args):
        try:
            function(obj, *args)
        except AttributeError as error:
            return str(error), error.name, error.obj is obj

    return x + 1, [named(setattr, Slotted(), name, 1) for name in "yz"], [
        named(delattr, made(), name) for made in (Slotted, Open) for name in "ayz"]


@case()
def iterators_that_are_none(x):
    class Itself:
        def __iter__(self):
            return self

    class Number:
        def __iter__(self):
            return 3

    class Nothing:
        __iter__ = None

    def loop(value):
        for _ in value:
            pass

    def unpack(value):
        _, _ = value

    def delegate(value):
        yield from value

    ways = (iter, list, loop, unpack, lambda v: [*v], lambda v: list(delegate(v)), lambda v: 1 in v, sum, max, set,
            "".join, enumerate, lambda v: zip(v), lambda v: print(*v), lambda v: [each for each in v])
    return x + 1, [[ending(way, value) for way in ways] for value in (Itself(), Number(), Nothing(), object(), 5)]


@case()
def class_methods_of_anything(x):
    method = classmethod(1).__get__(1)
    return x + 1, ending(method), type(method).__name__, staticmethod(1).__get__(1), ending(
        classmethod(lambda cls: cls.__name__).__get__(None, int))


@case()
def super_with_a_cell(x):
    class Own:
        def plain(self):
            return super().__init__()

        def closed_over(self):
            def inner():
                return self
            return super().__init__(), inner() is self

    def cell_of(value):
        return (lambda: value).__closure__[0]

    return x + 1, ending(Own.plain, cell_of(Own())), Own().closed_over()


@case()
def operators_that_are_refused(x):
    def power(value):
        value **= 2

    def product(value):
        value @= 2

    def total(value):
        value += 2

    return x + 1, [ending(function, value) for function in (power, product, total, lambda v: v ** 2)
                   for value in (None, "s", [], {})], ending(pow, None, 2), ending(divmod, None, 2)


@case()
def patterns_of_mixed_classes(x):
    def sequence_first(value):
        match value:
            case [*_]:
                return "sequence"
            case {}:
                return "mapping"
        return None

    def mapping_first(value):
        match value:
            case {}:
                return "mapping"
            case [*_]:
                return "sequence"
        return None

    class First(collections.UserDict, collections.abc.Sequence):
        pass

    class Second(dict, collections.abc.Sequence):
        pass

    values = (First(), Second(), "ab", b"x", bytearray(b"x"), [1], (), {}, range(3), collections.deque())
    return x + 1, [(sequence_first(value), mapping_first(value)) for value in values]


@case((ramp(2), {"foo": 1}), (ramp(2), {"foo": "s", "bar": 2}))
def fields_that_are_counted(x, d):
    class Echo:
        def __getitem__(self, key):
            return key

    return x + 1, "{[foo]}".format(d), "{[foo]:>{}} {.real}".format(d, 5, 3), "{[a]}{[1]}{{}}".format(Echo(), Echo()), \
        "{[foo]!r:>6}".format(d), ending("{[bar]}".format, d), "{a[foo]}{}".format(1, a=d), ending("{[]}".format, d)


class Proxy:
    def __init__(self, *bases):
        self.own = bases

    @property
    def __bases__(self):
        return self.own


@case()
def classes_that_are_objects(x):
    class Posed:
        def __init__(self, cls):
            self.cls = cls

        @property
        def __class__(self):
            return self.cls

    class Failing:
        @property
        def __bases__(self):
            raise RuntimeError("no bases")

    base = Proxy()
    middle = Proxy(base)
    last = Proxy(middle, base)
    return x + issubclass(last, base), [ending(*call) for call in (
        (issubclass, middle, base), (issubclass, base, middle), (issubclass, middle, (int, base)), (issubclass, 3, int),
        (issubclass, Proxy, base), (issubclass, int, 3), (issubclass, middle, int), (issubclass, Failing(), int),
        (isinstance, Posed(middle), base), (isinstance, Posed(base), middle), (isinstance, 3, 4),
        (issubclass, int, int | str), (issubclass, middle, int | str), (type.__subclasscheck__, int, middle))]


@case(breaks="SB011")
def nested_too_deep(x):
    values, classes = [], (str,)
    for _ in range(sys.getrecursionlimit() + 100):
        values, classes = [values], (classes,)
    return x + 1, str(ending(repr, values))[:20], str(ending(isinstance, "", classes))[:20]


@case()
def nested_deep(x):
    values = []
    for _ in range(40):
        values = [values]
    return x + 1, repr(values)


@case()
def tuples_that_are_filled_again(x):
    return (x + 1, len(set(map(id, itertools.combinations("abcde", 3)))), len(set(map(id, itertools.product("ab", "cd")))),
            len(set(map(id, list(zip("abc", "def", strict=True))))), len({id(each) for each in enumerate("abcd")}),
            len(set(map(id, itertools.permutations("abc", 2)))), len({id(each) for each in zip("abcd", "efgh")}))


@case()
def methods_of_builtins(x):
    values = []
    return x + 1, values.append.__self__ is values, values.append == values.append, values.append == [].append


class Manager:
    def __init__(self, fails):
        self.fails = fails

    def __enter__(self):
        return self

    def __exit__(self, *args):
        if self.fails:
            raise ValueError


def in_finally():
    try:
        return 1 / 0
    finally:
        str()


def in_with():
    with Manager(False):
        return 1 / 0


def in_exit():
    with Manager(True):
        str()


def in_handler():
    try:
        return 1 / 0
    except ZeroDivisionError as error:
        str()
        raise KeyError from error


def in_other_handler():
    try:
        return 1 / 0
    except TypeError:
        str()


@case()
def lines_of_frames(x):
    found = []
    for function in (in_finally, in_with, in_exit, in_handler, in_other_handler):
        try:
            function()
        except Exception as error:
            step = error.__traceback__.tb_next
            while step is not None:
                first = step.tb_frame.f_code.co_firstlineno
                found.append((step.tb_lineno - first, step.tb_frame.f_lineno - first, step.tb_frame.f_lasti))
                step = step.tb_next
    return x + 1, found


@case()
def descriptors_that_only_set(x):
    class Setting:
        def __set__(self, obj, value):
            obj.__dict__["set"] = value

    class Deleting:
        def __delete__(self, obj):
            obj.__dict__["deleted"] = True

    class Own:
        a = Setting()
        b = Deleting()

    own = Own()
    own.a = 10
    own.__dict__["a"] = 2
    del own.b
    return x + own.a, dict(own.__dict__), ending(setattr, own, "b", 1), ending(delattr, own, "a")


def chain_of(error):
    found = []
    while error is not None:
        found.append(error.args)
        error = error.__context__
    return found


@case()
def contexts_of_thrown_exceptions(x):
    def waits():
        try:
            yield
        except Exception as error:
            yield chain_of(error)

    def replaces(error):
        try:
            yield
        finally:
            raise error

    def handles():
        try:
            raise KeyError(0)
        except KeyError:
            yield from waits()

    def delegates():
        try:
            raise KeyError(6)
        except KeyError:
            yield from (each for each in range(2))

    found = []
    generator = delegates()
    next(generator)
    try:
        generator.throw(ValueError(7))
    except ValueError as error:
        found.append(chain_of(error))
    for make in (waits, handles):
        generator = make()
        next(generator)
        thrown = ValueError(2)
        thrown.__context__ = ValueError(3) if make is waits else None
        try:
            raise ValueError(1)
        except ValueError:
            found.append(generator.throw(thrown))
    generator = replaces(ValueError(5))
    next(generator)
    try:
        generator.throw(ValueError(4))
    except ValueError as error:
        found.append(chain_of(error))
    return x + 1, found


@case(graphs=1)
def classes_of_modules(x):
    import types

    class Own(types.ModuleType):
        a = 1

    module = types.ModuleType("module")
    before = hasattr(module, "a")
    module.__class__ = Own
    return x + module.a, before, type(module).__name__, "__class__" in vars(module), ending(
        setattr, module, "__dict__", {})


@case()
def classes_without_instances(x):
    return x + 1, ending(type(iter([]))), ending(type(None), 1), ending(type(iter({}.items())), 1)


@case()
def coroutines_that_are_over(x):
    async def answer():
        return 3

    coroutine = answer()
    found = ending(coroutine.send, None)
    return x + 1, found, ending(coroutine.send, None), ending(coroutine.throw, KeyError(1)), coroutine.close()
