"""Probes: facts about classes outside: their attributes, bases, operators and instances, changed between calls."""

from __future__ import annotations

import enum

from probing import Scene, probe, ramp
from scenery import box, one


@probe()
def class_attribute():
    class Config:
        k = 2

    config = Config()
    return Scene(lambda x: x * config.k + Config.k, one(ramp()), lambda: setattr(Config, "k", 3))


@probe()
def class_attribute_hidden_by_an_instance():
    class Config:
        k = 2

    config = Config()
    return Scene(lambda x: x * config.k, one(ramp()), lambda: setattr(config, "k", 3))


@probe()
def class_attribute_hidden_by_a_subclass():
    class Base:
        k = 2

    class Config(Base):
        pass

    config = Config()
    return Scene(lambda x: x * config.k, one(ramp()), lambda: setattr(Config, "k", 3))


@probe()
def class_attribute_written():
    class Config:
        k = 2

    def fn(x):
        Config.k = Config.k + 1
        return x * Config.k

    return Scene(fn, one(ramp()), lambda: setattr(Config, "k", 30), lambda: Config.k)


@probe()
def class_attribute_that_is_a_list():
    class Config:
        ks = [1, 2]

    return Scene(lambda x: x * Config.ks[1], one(ramp()), lambda: Config.ks.__setitem__(1, 5))


@probe()
def monkeypatched_method():
    class Model:
        def scale(self, x):
            return x * 2

    model = Model()
    return Scene(lambda x: model.scale(x), one(ramp()), lambda: setattr(Model, "scale", lambda self, x: x * 3))


@probe()
def method_hidden_by_an_instance():
    class Model:
        def scale(self, x):
            return x * 2

    model = Model()
    return Scene(lambda x: model.scale(x), one(ramp()), lambda: setattr(model, "scale", lambda x: x * 3))


@probe()
def property_replaced():
    class Model:
        @property
        def k(self):
            return 2

    model = Model()
    return Scene(lambda x: x * model.k, one(ramp()), lambda: setattr(Model, "k", property(lambda self: 3)))


@probe()
def getattr_added_to_a_class():
    class Model:
        pass

    model = Model()
    return Scene(lambda x: x * getattr(model, "k", 2), one(ramp()),
                 lambda: setattr(Model, "__getattr__", lambda self, name: 3))


@probe()
def operator_added_to_a_class():
    class Model:
        def __mul__(self, x):
            return x * 2

    model = Model()
    return Scene(lambda x: model * x, one(ramp()), lambda: setattr(Model, "__mul__", lambda self, x: x * 3))


@probe()
def truth_of_an_instance():
    class Model:
        pass

    model = Model()
    return Scene(lambda x: x * 2 if model else x * 3, one(ramp()), lambda: setattr(Model, "__bool__", lambda self: False))


@probe()
def length_of_an_instance():
    class Model:
        def __len__(self):
            return len(items)

    items = [1]
    model = Model()
    return Scene(lambda x: x * 2 if model else x * 3, one(ramp()), items.clear)


@probe()
def metaclass_attribute():
    class Meta(type):
        k = 2

    class Model(metaclass=Meta):
        pass

    return Scene(lambda x: x * Model.k, one(ramp()), lambda: setattr(Meta, "k", 3))


@probe()
def bases_reassigned():
    class Two:
        k = 2

    class Three:
        k = 3

    class Model(Two):
        pass

    model = Model()
    return Scene(lambda x: x * model.k, one(ramp()), lambda: setattr(Model, "__bases__", (Three,)))


@probe()
def subclass_hook_of_isinstance():
    class Meta(type):
        def __instancecheck__(cls, value):
            return flags[0]

    class Model(metaclass=Meta):
        pass

    flags = [True]
    return Scene(lambda x: x * 2 if isinstance(x, Model) else x * 3, one(ramp()), lambda: flags.__setitem__(0, False))


@probe()
def class_reassigned():
    class Two:
        def scale(self, x):
            return x * 2

    class Three:
        def scale(self, x):
            return x * 3

    model = Two()
    return Scene(lambda x: model.scale(x), one(ramp()), lambda: setattr(model, "__class__", Three))


@probe()
def enum_member_chosen():
    class Mode(enum.Enum):
        TWO = 2
        THREE = 3

    thing = box(mode=Mode.TWO)
    return Scene(lambda x: x * thing.mode.value if thing.mode is Mode.TWO else x, one(ramp()),
                 lambda: setattr(thing, "mode", Mode.THREE))


@probe()
def attribute_of_an_enum_member():
    class Mode(enum.Enum):
        TWO = 2

    Mode.TWO.extra = 2
    return Scene(lambda x: x * Mode.TWO.extra, one(ramp()), lambda: setattr(Mode.TWO, "extra", 3))


@probe()
def equality_that_c_code_finds():
    class Numbered:
        __hash__ = None

        def __init__(self, k):
            self.k = k

        def __eq__(self, other):
            return self.k == other.k

    held = [Numbered(1), Numbered(2), Numbered(3)]

    def change():
        Numbered.__eq__ = lambda self, other: self.k == other.k + 1

    return Scene(lambda x: (held.index(Numbered(2)), held.count(Numbered(2)), x + 1), one(ramp()), change)


def tried(question):
    try:
        return question()
    except TypeError as error:
        return str(error)


def say(value):
    return lambda self, *others: value


def pair(first, second):
    return lambda self: iter((first, second))


# What C code asks of an object: (name of the probe, methods of its class, methods that it gets, what is asked)
ASKED = (
    ("int_made_by_index", {"__index__": say(3)}, {"__int__": say(4)}, int),
    ("float_made_by_index", {"__index__": say(3)}, {"__float__": say(4.5)}, float),
    ("complex_made_by_float", {"__float__": say(3.5)}, {"__complex__": say(4j)}, complex),
    ("int_of_what_had_none", {}, {"__int__": say(4)}, lambda n: tried(lambda: int(n))),
    ("absolute_value_of_what_had_none", {}, {"__abs__": say(4)}, lambda n: tried(lambda: abs(n))),
    ("integer_under_another_name", {"__int__": say(3)}, {"__int__": say(4)}, int),
    ("index_under_another_name", {"__index__": say(1)}, {"__index__": say(2)}, lambda n: ([5, 6, 7][n], list(range(n)))),
    ("times_under_another_name", {"__index__": say(1)}, {"__index__": say(2)}, lambda n: "ab" * n),
    ("truth_under_another_name", {"__bool__": say(True)}, {"__bool__": say(False)}, lambda n: (any([n]), len([*filter(None, [n])]))),
    ("order_under_another_name", {"__lt__": say(True)}, {"__lt__": say(False)}, lambda n: (1, n) < (1, 2)),
    ("reflected_order_under_another_name", {"__gt__": say(True)}, {"__gt__": say(False)}, lambda n: max([1, n]) is n),
    ("items_under_another_name", {"__iter__": pair(1, 2)}, {"__iter__": pair(3, 4)}, lambda n: (list(zip(n, n)), list(enumerate(n)))),
    ("equality_beside_a_hash", {"__hash__": say(3)}, {"__eq__": say(True)}, lambda n: len({n, 3})),
    ("position_under_another_name", {"__eq__": say(True)}, {"__eq__": say(False)}, lambda n: [1, n, 3].index(3)),
    ("text_by_format", {"__str__": say("s")}, {"__format__": say("f")}, lambda n: f"{n}"),
    ("rounding_under_another_name", {"__round__": say(1)}, {"__round__": say(2)}, round),
    ("reversal_of_a_sequence", {"__getitem__": lambda self, i: i, "__len__": say(2)}, {"__reversed__": pair(8, 9)},
     lambda n: list(reversed(n))),
)


def asking(name, methods, later, question):
    def make():
        cls = type("Asked", (), dict(methods))
        asked = cls()
        return Scene(lambda x: (x + 1, question(asked)), one(ramp()),
                     lambda: [setattr(cls, each, method) for each, method in later.items()])

    make.__name__ = name
    probe()(make)


for case in ASKED:
    asking(*case)
