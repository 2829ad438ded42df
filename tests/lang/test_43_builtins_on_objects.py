"""Builtins about numbers, types and attributes."""

import warnings

import torch

from curriculum import call, case, ramp


class Animal:
    legs = 4

    def __init__(self, name="x"):
        self.name = name

    def speak(self):
        return f"{self.name} speaks"


class Dog(Animal):
    pass


@case((-7, 3), (7, -3), (0, 1), graphs=0)
def numbers(a, b):
    return abs(a), divmod(a, b), pow(a, 2), pow(a, 2, 5), round(a / b, 2), round(2.5), round(-1.5), round(1234, -2)


@case(("12",), ("-3",), ("x",), graphs=0)
def int_and_float(s):
    return int(s), float(s), int(s, 16), int(3.9), int(-3.9), int(True), float("inf"), float("-1e3"), complex("1+2j")


@case((65,), (255,), graphs=0)
def characters_and_bases(n):
    return chr(n), ord(chr(n)), hex(n), bin(n), oct(n), ascii("é"), repr("a'b"), str(n), format(n, "08b"), bool(n)


@case(call(ramp(2)))
def constructors(x):
    return list("ab"), tuple([1]), set([1, 1]), frozenset("a"), dict([("a", 1)], b=2), dict(a=1), bytes(2), bytearray(b"a"), str(), int(), x + 1


@case(lambda: call(Dog("d"), ramp(2)), lambda: call(Animal("a"), ramp(2)))
def isinstance_and_type(a, x):
    return (isinstance(a, Animal), isinstance(a, Dog), isinstance(a, (int, Dog)), isinstance(3, int | str), type(a) is Dog,
            type(a).__name__, issubclass(type(a), Animal), isinstance(x, torch.Tensor), isinstance(True, int), x + a.legs)  # fmt: skip


@case(lambda: call(Dog("d"), ramp(2)))
def attributes(a, x):
    setattr(a, "age", x.dim())
    found = getattr(a, "age"), getattr(a, "none", "default"), hasattr(a, "name"), hasattr(a, "zz")
    delattr(a, "name")
    return found, getattr(a, "speak").__name__, vars(a), x + a.age


@case(lambda: call(Dog("d"), ramp(2)))
def getattr_fails(a, x):
    y = x + 1
    return y, getattr(a, "missing")


@case(call(ramp(2)))
def vars_and_dir(x):
    class Local:
        b = 1

        def a(self): ...

    local = Local()
    local.z = 3
    return vars(local), [n for n in dir(local) if not n.startswith("_")], sorted(n for n in vars(Local) if not n.startswith("_")), x + local.z


@case(lambda: call(len, ramp(2)), lambda: call(3, ramp(2)), lambda: call(Dog, ramp(2)))
def callable_builtin(thing, x):
    return callable(thing), callable(lambda: 0), callable(Dog("d")), callable(x), x + callable(thing)


@case(call(ramp(2)))
def identity_and_hash(x):
    a, b = [1], [1]
    return id(a) == id(a), id(a) == id(b), a is b, hash("s") == hash("s"), hash((1, 2)) == hash((1, 2)), hash(1) == hash(1.0), x + 1


@case(([1],), ({},), graphs=0)
def hash_fails(value):
    return hash(value)


@case(call(ramp(2)))
def iter_next_slice_range(x):
    it = iter("ab")
    return next(it), next(it), next(it, "end"), slice(1, 2), list(range(3, 0, -1)), range(5)[1:3], len(range(0, 10, 3)), x + 1


@case(call(ramp(2)))
def type_errors_of_builtins(x):
    told = []
    attempts = [lambda: len(3), lambda: abs("a"), lambda: sum(["a"]), lambda: sorted(3), lambda: int([]), lambda: chr("a"),
                lambda: isinstance(1, "int"), lambda: getattr(1, 2), lambda: round("a"), lambda: iter(5), lambda: next([]),
                lambda: zip(1), lambda: range("a"), lambda: ord("ab"), lambda: divmod(1, 0), lambda: pow(2, -1, 4)]  # fmt: skip
    for attempt in attempts:
        try:
            attempt()
        except Exception as error:
            told.append(f"{type(error).__name__}: {error}")
    return told, x + len(told)


@case(call(ramp(2)), call(ramp(3)))
def conversions_of_sizes(x):
    n = x.shape[0]
    return int(n), float(n), bool(n), str(n), list(range(n)), [0] * n, "ab"[n - 2], x * float(n) + pow(n, 2) + divmod(7, n)[1]


@case(call(ramp(2)))
def memoryview_of_bytes(x):
    numbers = memoryview(b"abc")
    return numbers[0], bytes(numbers[1:]), len(numbers), x + numbers[0]


@case(call(3), call(4), graphs=0)
def code_of_another_kind_assigned(n):
    def plain():
        return n

    def yielding():
        yield n

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        plain.__code__ = yielding.__code__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            yielding.__code__ = (lambda: n).__code__
            changed = True
        except DeprecationWarning:
            changed = False
    return list(plain()), [(each.category, str(each.message)) for each in heard], changed
