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
