"""Probes: facts about Python objects outside the compiled function, each changed between calls."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
from typing import Any

import torch
from probing import Scene, probe, ramp
from torch import nn


class Thing:
    """A holder of attributes."""


def box(**attributes: Any) -> Any:
    thing = Thing()
    vars(thing).update(attributes)
    return thing


def one(x: torch.Tensor) -> Any:
    return lambda: (x,)


@probe()
def attribute():
    thing = box(k=2)
    return Scene(lambda x: x * thing.k, one(ramp()), lambda: setattr(thing, "k", 3), lambda: vars(thing))


@probe()
def attribute_of_an_argument():
    thing = box(k=2)
    return Scene(lambda t, x: x * t.k, lambda: (thing, ramp()), lambda: setattr(thing, "k", 2.0))


@probe()
def attribute_that_appears():
    thing = box()
    return Scene(lambda x: x * getattr(thing, "k", 5), one(ramp()), lambda: setattr(thing, "k", 3))


@probe()
def attribute_that_goes():
    thing = box(k=2)
    return Scene(lambda x: x * (thing.k if hasattr(thing, "k") else 7), one(ramp()), lambda: delattr(thing, "k"))


@probe()
def type_of_an_equal_constant():
    thing = box(k=1)
    return Scene(lambda x: (x * thing.k, thing.k), one(ramp()), lambda: setattr(thing, "k", True))


@probe()
def sign_of_zero():
    thing = box(k=0.0)
    return Scene(lambda x: x.sign() / x.new_tensor(1.0) + thing.k * -1.0, one(torch.zeros(2)), lambda: setattr(thing, "k", -0.0))


def namespace_function(body: str, **names: Any) -> tuple[types.FunctionType, dict[str, Any]]:
    """A function with globals of its own."""
    names = {"torch": torch, "__name__": __name__, "__builtins__": __builtins__, **names}
    exec(compile(body, __file__, "exec"), names)
    return names["fn"], names


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
def dict_key_added():
    table = {"a": 1}
    return Scene(lambda x: x * (table["b"] if "b" in table else 5), one(ramp()), lambda: table.update(b=3), lambda: table)


@probe()
def dict_iterated():
    table = {"a": 1}
    return Scene(lambda x: [x * v for v in table.values()], one(ramp()), lambda: table.update(b=3))


@probe()
def dict_order():
    table = {"a": 1, "b": 2}
    return Scene(lambda x: (x, list(table)), one(ramp()), lambda: table.update(a=table.pop("a")))


@probe()
def dict_length():
    table = {"a": 1}
    return Scene(lambda x: x * len(table), one(ramp()), lambda: table.update(b=3))


@probe()
def dict_get_with_default():
    table: dict[str, int] = {}
    return Scene(lambda x: x * table.get("k", 2), one(ramp()), lambda: table.update(k=3))


@probe()
def defaultdict_written():
    table = collections.defaultdict(lambda: 2)
    return Scene(lambda x: x * table["k"], one(ramp()), lambda: table.update(k=3), lambda: dict(table))


@probe()
def list_grown():
    ks = [1, 2]
    return Scene(lambda x: x * sum(ks), one(ramp()), lambda: ks.append(3))


@probe()
def list_item():
    ks = [1, 2]
    return Scene(lambda x: x * ks[-1], one(ramp()), lambda: ks.append(3))


@probe()
def list_truth():
    ks: list[int] = []
    return Scene(lambda x: x * 2 if ks else x * 3, one(ramp()), lambda: ks.append(3))


@probe()
def list_membership():
    ks = [1, 2]
    return Scene(lambda x: x * 2 if 3 in ks else x * 3, one(ramp()), lambda: ks.append(3))


@probe()
def tuple_replaced():
    thing = box(ks=(1, [2]))
    return Scene(lambda x: x * thing.ks[1][0], one(ramp()), lambda: setattr(thing, "ks", (1, [3])))


@probe()
def nested_container():
    tree = {"a": [{"k": 2}, (1, [5])]}
    def change():
        tree["a"][0]["k"] = 3
        tree["a"][1][1][0] = 6
    return Scene(lambda x: x * tree["a"][0]["k"] + tree["a"][1][1][0], one(ramp()), change)


@probe()
def deque_rotated():
    ks = collections.deque([2, 3])
    return Scene(lambda x: x * ks[0], one(ramp()), lambda: ks.rotate(1))


@probe()
def set_member():
    ks = {1, 2}
    return Scene(lambda x: x * 2 if 3 in ks else x * 3, one(ramp()), lambda: ks.add(3))


@probe()
def slot():
    class Config:
        __slots__ = ("k", "unset")

    config = Config()
    config.k = 2
    return Scene(lambda x: x * config.k + hasattr(config, "unset"), one(ramp()), lambda: setattr(config, "unset", 3))


@probe()
def dataclass_field():
    @dataclasses.dataclass
    class Config:
        k: int = 2

    config = Config()
    return Scene(lambda x: x * dataclasses.replace(config, k=config.k + 1).k, one(ramp()), lambda: setattr(config, "k", 4))


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
def identity_of_two_attributes():
    shared = [1]
    thing = box(a=shared, b=shared)
    return Scene(lambda x: x * 2 if thing.a is thing.b else x * 3, one(ramp()), lambda: setattr(thing, "b", [1]))


@probe()
def identity_of_two_attributes_that_meet():
    thing = box(a=[1], b=[1])

    def fn(x):
        thing.a[0] = 5
        return x * thing.b[0]

    def change():
        thing.a[0] = 1
        thing.b = thing.a

    return Scene(fn, one(ramp()), change, lambda: vars(thing))


@probe()
def submodule_replaced():
    model = nn.Sequential(nn.ReLU(), nn.Tanh())
    return Scene(lambda x: model(x), one(ramp()), lambda: model.__setitem__(1, nn.Sigmoid()))


@probe()
def module_appended():
    model = nn.Sequential(nn.ReLU())
    return Scene(lambda x: model(x), one(ramp()), lambda: model.append(nn.Sigmoid()))


@probe()
def forward_hidden_by_an_instance():
    model = nn.Sequential(nn.ReLU())
    return Scene(lambda x: model(x), one(ramp()), lambda: setattr(model[0], "forward", lambda x: x * 3))


@probe()
def training_flag():
    torch.manual_seed(0)
    model = nn.Dropout(0.5).eval()
    return Scene(lambda x: model(x), lambda: (torch.manual_seed(1) and ramp(),), lambda: model.train())


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


@probe()
def slot_written():
    class Config:
        __slots__ = ("k",)

    config = Config()
    config.k = 2

    def fn(x):
        config.k += 1
        return x * config.k

    return Scene(fn, one(ramp()), lambda: setattr(config, "k", 8), lambda: config.k)


@probe()
def set_written():
    ks = {1, 2}

    def fn(x):
        ks.add(len(ks) + 1)
        ks.discard(1)
        return x * len(ks)

    return Scene(fn, one(ramp()), lambda: ks.add(50), lambda: sorted(ks))


@probe()
def instance_dict_as_a_value():
    thing = box(k=2)

    def fn(x):
        own = vars(thing)
        own["k"] = own["k"] + 1
        return x * thing.k, own is thing.__dict__, own

    return Scene(fn, one(ramp()), lambda: setattr(thing, "k", 8), lambda: (thing, thing.__dict__))


@probe()
def instance_dict_of_a_fresh_object():
    def fn(x):
        thing = Thing()
        own = thing.__dict__
        own["k"] = x.shape[0]
        return x * thing.k, thing, own

    return Scene(fn, one(ramp()))


@probe()
def attribute_deleted():
    thing = box(k=2)

    def fn(x):
        if hasattr(thing, "k"):
            del thing.k
            return x * 2
        thing.k = 5
        return x * 3

    return Scene(fn, one(ramp()), lambda: vars(thing).clear(), lambda: vars(thing))


@probe("raises")
def attribute_deleted_that_may_be_gone():
    thing = box(k=2, j=1)

    def fn(x):
        del thing.k
        return x * 2

    return Scene(fn, one(ramp()), lambda: setattr(thing, "k", 4), lambda: vars(thing))


@probe("raises")
def key_deleted_that_may_be_gone():
    table = {"k": 2}

    def fn(x):
        del table["k"]
        return x * 2

    return Scene(fn, one(ramp()), lambda: table.update(k=4), lambda: dict(table))


@probe("raises")
def name_deleted_that_may_be_gone():
    fn, names = namespace_function("def fn(x):\n  global K\n  del K\n  return x * 2", K=2)
    return Scene(fn, one(ramp()), lambda: names.update(K=9), lambda: "K" in names)


@probe("raises")
def list_popped_that_may_be_empty():
    ks = [1, 2]
    return Scene(lambda x: x * ks.pop(), one(ramp()), ks.clear, lambda: list(ks))


@probe("raises")
def set_popped_that_may_be_empty():
    ks = {1}

    def fn(x):
        ks.remove(1)
        return x * 2

    return Scene(fn, one(ramp()), lambda: ks.add(1), lambda: set(ks))


def weighed(values: Any, x: torch.Tensor) -> torch.Tensor:
    for place, value in enumerate(values):
        x = x * (place + 2) + value
    return x


def ordered() -> Any:
    table = collections.OrderedDict(a=1, b=2, c=3)
    table.move_to_end("b", last=False)
    return table


@probe()
def order_of_an_ordered_dict_by_values():
    table = ordered()
    return Scene(lambda x: weighed(table.values(), x), one(ramp()), lambda: table.move_to_end("a"))


@probe()
def order_of_an_ordered_dict_by_items():
    table = ordered()
    return Scene(lambda x: weighed([v for _, v in table.items()], x), one(ramp()), lambda: table.move_to_end("a"))


@probe()
def order_of_an_ordered_dict_by_keys():
    table = ordered()
    return Scene(lambda x: weighed(map(ord, table.keys()), x), one(ramp()), lambda: table.move_to_end("a"))


@probe()
def order_of_an_ordered_dict_behind_a_proxy():
    table = ordered()
    proxy = types.MappingProxyType(table)
    return Scene(lambda x: weighed(proxy.values(), x), one(ramp()), lambda: table.move_to_end("a"))


@probe()
def keys_of_an_ordered_dict():
    table = ordered()
    return Scene(lambda x: weighed(table.values(), x), one(ramp()), lambda: table.update(d=4))
