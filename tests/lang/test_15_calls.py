"""Every form of a call: nested, starred, bound, through containers, with kwargs tensors."""


import enum
import functools
import math
import types

import torch
import torch.nn.functional as F

import stator
from curriculum import call, case, ramp


def scale(x, factor=2, *, shift=0):
    return x * factor + shift


def collect(*args, **kwargs):
    return args, kwargs


class Scaler:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x, extra=0):
        return x * self.factor + extra

    def method(self, x, *rest):
        return x + len(rest)


@case()
def positional_and_keyword(x):
    return scale(x), scale(x, 3), scale(x, factor=3), scale(factor=4, x=x), scale(x, shift=1)


@case(call(ramp(2), [1, 2], {"k": 3}), call(ramp(2), [], {}))
def starred(x, items, table):
    return collect(*items), collect(0, *items, 9, **table), collect(*items, *items, z=1, **table), x + len(items)


@case(lambda: call(Scaler(3), ramp(2)), lambda: call(Scaler(-1), ramp(2)))
def callable_object(scaler, x):
    return scaler(x), scaler(x, extra=1), callable(scaler), Scaler(5)(x)


@case(lambda: call(Scaler(3), ramp(2)))
def bound_methods(scaler, x):
    bound = scaler.method
    unbound = Scaler.method
    return bound(x, 1, 2), unbound(scaler, x), bound.__self__ is scaler, bound.__name__, bound == scaler.method


@case((ramp(2), "double"), (ramp(2), "negate"))
def dispatch_table(x, name):
    table = {"double": lambda v: v * 2, "negate": torch.neg, "relu": F.relu}
    return table[name](x)


@case()
def functions_as_values(x):
    def apply(f, *args, **kwargs):
        return f(*args, **kwargs)

    return apply(scale, x, factor=5), apply(apply, scale, x), apply(torch.add, x, 1), [f(x) for f in (torch.sin, torch.cos)]


@case(call(ramp(2)))
def order_of_evaluation(x):
    seen = []

    def note(name):
        seen.append(name)
        return name

    def target():
        seen.append("function")
        return collect

    target()(note("a"), *[note("b")], note("c"), k=note("d"), **{note("e"): note("f")})
    return seen, x + len(seen)


@case()
def nested_calls(x):
    return scale(scale(scale(x, 2), shift=scale(1)), factor=scale(1, 1))


@case(call(ramp(2), torch.ones(2)), call(ramp(3), torch.zeros(3)))
def tensor_keywords(x, other):
    return torch.add(x, other=other, alpha=2), torch.addcmul(x, tensor1=x, tensor2=other, value=0.5), x.add(other=other)


@case(call(x=ramp(2), y=ramp(2)), call(y=ramp(3), x=ramp(3)))
def entry_by_keyword(x, y):
    return x - y


@case(call(ramp(2)))
def method_calls_on_literals(x):
    return [3, 1].index(1), "a,b".split(","), {"k": 1}.get("k"), (5).bit_length(), (1.5).is_integer(), x.mul(2).add(1)


@case(call(ramp(2)))
def call_a_class(x):
    return int("5"), list("ab"), dict(a=1), tuple([1]), Scaler(2).factor, type(Scaler(1)) is Scaler, x + int(2.9)


@case(call(ramp(2)))
def immediately_called(x):
    return (lambda v, *r: v + len(r))(x, 1, 2), (lambda: x)(), (scale if x.dim() else collect)(x), [scale][0](x, 0)


@case(call(ramp(2), 3), call(ramp(2), "s"), call(ramp(2), None))
def calling_what_is_not_callable(x, thing):
    y = x + 1
    return thing(y)


@case(call(ramp(2)))
def arguments_with_the_same_name_twice(x):
    return scale(x, **{"factor": 2}, **{"factor": 3})


class Owner:
    def method(self, *args, **kwargs):
        return args, kwargs


class Named:
    def __str__(self):
        return f"a {type(self).__name__}"

    def __call__(self, *args, **kwargs):
        return args, kwargs


def texts_of_wrong_stars(function):
    found = []
    for call_it in (lambda f: f(*3), lambda f: f(**3), lambda f: f(1, *None), lambda f: f(**{"k": 1}, **{"k": 2})):
        try:
            call_it(function)
        except TypeError as error:
            found.append(str(error))
    return found


@case(call(ramp(2)))
def wrong_stars_of_every_callable(x):
    def local(a, *rest, k=1, **more):
        return a

    functions = (local, Owner().method, Owner, len, [].append, math.sqrt, Named())
    return [texts_of_wrong_stars(function) for function in functions], x + 1


class Shown(Named):
    def __init__(self):
        self.__qualname__ = "own"
        self.__module__ = "builtins"


@case(call(ramp(2)))
def wrong_stars_of_objects(x):
    return texts_of_wrong_stars(Named()), texts_of_wrong_stars(Shown()), x + 1


@case(call(ramp(2)), breaks="the text has an address in it")
def wrong_stars_of_a_partial(x):
    found = texts_of_wrong_stars(functools.partial(scale, 1))
    return [text.partition(" at 0x")[0] for text in found], x + 1


def test_keywords_of_a_subclass_of_str():
    class Text(str):
        pass

    class Named(str, enum.Enum):
        SCALE = "scale"

    def scaled(x, scale=1, **rest):
        return x * scale, [type(key).__name__ for key in rest]

    def calls(x):
        return scaled(x, **{Text("scale"): 3}), scaled(x, **{Named.SCALE: 3}), scaled(x, **{Text("other"): 3}), dict(**{Text("a"): 1})

    assert stator.compile(calls, backend="eager")(2) == calls(2)


def test_dir_of_a_function_with_attributes():
    def plain():
        pass

    def listed():
        plain.known = 7
        return "known" in dir(plain)

    assert stator.compile(listed, backend="eager")() and listed()


def test_call_of_a_module():
    def calls(name, member):
        module = types.ModuleType("m")
        module.m = member
        if name is not None:
            module.__name__ = name
        try:
            module()
        except TypeError as error:
            return str(error)

    def calls_outside():
        try:
            math(1)
        except TypeError as error:
            return str(error)

    compiled = stator.compile(calls, backend="eager", fullgraph=True)
    for call_ in ((None, len), (None, 3), ("other", len), (5, len), (None, calls)):
        assert compiled(*call_) == calls(*call_)
    assert stator.compile(calls_outside, backend="eager", fullgraph=True)() == calls_outside()
