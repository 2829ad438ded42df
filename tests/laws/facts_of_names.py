"""Probes: globals, closure cells, defaults and the code of functions outside, each changed between calls."""

from __future__ import annotations

import enum
import functools
import types

import torch
from probing import Scene, probe, ramp
from scenery import box, namespace_function, one


@probe()
def global_read():
    fn, names = namespace_function("def fn(x): return x * K", K=2)
    return Scene(fn, one(ramp()), lambda: names.update(K=3))


@probe()
def global_that_hides_a_builtin():
    fn, names = namespace_function("def fn(x): return x * len([1, 2])")
    return Scene(fn, one(ramp()), lambda: names.update(len=lambda xs: 10))


@probe()
def global_written():
    fn, names = namespace_function("def fn(x):\n  global K\n  K += 1\n  return x * K", K=2)
    return Scene(fn, one(ramp()), lambda: names.update(K=9), lambda: names["K"])


@probe()
def closure_cell():
    k = 2

    def fn(x):
        return x * k

    def change():
        nonlocal k
        k = 3

    return Scene(fn, one(ramp()), change, lambda: k)


@probe()
def closure_cell_written():
    k = 2

    def fn(x):
        nonlocal k
        k += 1
        return x * k

    def change():
        nonlocal k
        k = 30

    return Scene(fn, one(ramp()), change, lambda: k)


@probe()
def closure_of_a_function_argument():
    def scaled_by(k):
        return lambda x: x * k
    chosen = [scaled_by(2)]
    return Scene(lambda f, x: f(x), lambda: (chosen[0], ramp()), lambda: chosen.__setitem__(0, scaled_by(3)))


@probe()
def default_arguments_changed():
    def scale(x, k=2, *, more=1):
        return x * k + more

    def change():
        scale.__defaults__ = (3,)
        scale.__kwdefaults__ = {"more": 5}

    return Scene(lambda x: scale(x), one(ramp()), change)


@probe()
def default_arguments_of_the_root_changed():
    def fn(x, k=2):
        return x * k

    return Scene(fn, one(ramp()), lambda: setattr(fn, "__defaults__", (3,)))


@probe()
def mutable_default_changed():
    def scale(x, ks=[2]):
        return x * ks[0]

    return Scene(lambda x: scale(x), one(ramp()), lambda: scale.__defaults__[0].__setitem__(0, 3))


@probe()
def keyword_default_mutated():
    def scale(x, *, k=2):
        return x * k

    return Scene(lambda x: scale(x), one(ramp()), lambda: scale.__kwdefaults__.update(k=3))


@probe()
def mutable_default_grown():
    def gather(x, seen=[]):
        seen.append(len(seen))
        return x * len(seen)

    return Scene(lambda x: gather(x), one(ramp()), lambda: gather.__defaults__[0].append(7), lambda: gather.__defaults__)


@probe()
def code_replaced():
    def scale(x):
        return x * 2

    def other(x):
        return x * 3

    return Scene(lambda x: scale(x), one(ramp()), lambda: setattr(scale, "__code__", other.__code__))


@probe()
def code_of_the_root_replaced():
    def fn(x):
        return x * 2

    def other(x):
        return x * 3

    return Scene(fn, one(ramp()), lambda: setattr(fn, "__code__", other.__code__))


@probe()
def function_attribute():
    def scale(x):
        return x * scale.k

    scale.k = 2
    return Scene(lambda x: scale(x), one(ramp()), lambda: setattr(scale, "k", 3))


@probe()
def partial_reassigned():
    thing = box(f=functools.partial(torch.mul, other=2))
    return Scene(lambda x: thing.f(x), one(ramp()), lambda: setattr(thing, "f", functools.partial(torch.mul, other=3)))


@probe()
def bound_method_of_another_object():
    class Model:
        def __init__(self, k):
            self.k = k

        def scale(self, x):
            return x * self.k

    thing = box(f=Model(2).scale)
    return Scene(lambda x: thing.f(x), one(ramp()), lambda: setattr(thing, "f", Model(3).scale))


@probe()
def module_attribute():
    module = types.ModuleType("made_up")
    module.k = 2
    return Scene(lambda x: x * module.k, one(ramp()), lambda: setattr(module, "k", 3))


@probe()
def module_attribute_written():
    module = types.ModuleType("made_up")
    module.k = 2

    def fn(x):
        module.k += 1
        return x * module.k

    return Scene(fn, one(ramp()), lambda: setattr(module, "k", 30), lambda: module.k)


@probe()
def cell_that_is_empty():
    if False:
        k = 2

    def fn(x):
        try:
            return x * k
        except NameError:
            return x * 7

    def change():
        fn.__closure__[0].cell_contents = 3

    return Scene(fn, one(ramp()), change)


@probe("raises")
def name_deleted_that_may_be_gone():
    fn, names = namespace_function("def fn(x):\n  global K\n  del K\n  return x * 2", K=2)
    return Scene(fn, one(ramp()), lambda: names.update(K=9), lambda: "K" in names)


@probe()
def function_attributes_as_a_dict():
    def part():
        return None

    part.k = 3

    def fn(x):
        part.k += 1
        own = vars(part)
        own["j"] = own["k"] + 1
        part.new = [part.j]
        return x * part.k, sorted(own), own is part.__dict__

    return Scene(fn, one(ramp()), lambda: setattr(part, "k", 8), lambda: dict(vars(part)))


@probe()
def function_attribute_deleted():
    def part():
        return None

    def fn(x):
        part.k = getattr(part, "k", 1) + 1
        part.j = part.k
        del part.j
        return x * part.k, hasattr(part, "j")

    return Scene(fn, one(ramp()), lambda: vars(part).clear(), lambda: dict(vars(part)))


@probe()
def enum_member_attributes_as_a_dict():
    class Color(enum.Enum):
        RED = 1

    member: Any = Color.RED
    member.k = 1

    def fn(x):
        member.k += 1
        vars(member)["j"] = 2
        return x * member.k + member.j, sorted(vars(member))

    return Scene(fn, one(ramp()), lambda: setattr(member, "k", 8), lambda: dict(vars(member)))
