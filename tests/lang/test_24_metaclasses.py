"""Metaclasses, __init_subclass__, __class_getitem__, type with three arguments."""

import abc
import types

import stator
from curriculum import call, case, ramp


class Registering(type):
    known = {}

    def __new__(mcls, name, bases, namespace, **options):
        namespace["tag"] = name.lower()
        cls = super().__new__(mcls, name, bases, namespace)
        mcls.known[name] = options
        return cls

    def __init__(cls, name, bases, namespace, **options):
        super().__init__(name, bases, namespace)
        cls.options = options

    def __call__(cls, *args, **kwargs):
        made = super().__call__(*args, **kwargs)
        made.stamped = True
        return made

    def __len__(cls):
        return len(cls.known)

    def __getattr__(cls, name):
        return f"{cls.__name__} has no {name}"

    @property
    def shout(cls):
        return cls.__name__.upper()


class Model(metaclass=Registering, size=3):
    def __init__(self, n):
        self.n = n

    def apply(self, x):
        return x * self.n


class Singleton(type):
    instances = {}

    def __call__(cls, *args):
        if cls not in cls.instances:
            cls.instances[cls] = super().__call__(*args)
        return cls.instances[cls]


class Settings(metaclass=Singleton):
    def __init__(self):
        self.uses = 0


class Plugin:
    plugins = []

    def __init_subclass__(cls, /, priority=0, **rest):
        super().__init_subclass__(**rest)
        cls.priority = priority
        Plugin.plugins.append(cls.__name__)


class Vector:
    def __class_getitem__(cls, item):
        return f"{cls.__name__}[{item}]"


@case()
def instance_of_a_metaclass(x):
    model = Model(4)
    return model.apply(x), model.stamped, Model.tag, Model.options, Model.shout, len(Model), Model.anything


@case()
def class_made_with_a_metaclass(x):
    class Local(Model, size=7):
        def apply(self, v):
            return super().apply(v) + 1

    return Local(2).apply(x), Local.options, Local.tag, type(Local).__name__, sorted(Registering.known)


@case()
def metaclass_call_keeps_one_instance(x):
    Settings().uses += 1
    Settings().uses += 1
    return x + Settings().uses, Settings() is Settings()


@case()
def init_subclass(x):
    class First(Plugin, priority=2):
        pass

    class Second(First):
        pass

    return x + First.priority, Second.priority, Plugin.plugins


@case(call(ramp(2)))
def class_getitem(x):
    return Vector[3], Vector["a", 1], list[int], dict[str, int].__args__, x + 1


@case(call(ramp(2)))
def type_with_three_arguments(x):
    Made = type("Made", (Vector,), {"n": 5, "apply": lambda self, v: v + self.n})
    return Made().apply(x), Made.__name__, Made.__bases__[0].__name__, Made[1], type(Made) is type


@case(call(ramp(2)))
def prepare(x):
    class Ordered(type):
        @classmethod
        def __prepare__(mcls, name, bases, **options):
            return {"prepared": True, "order": []}

        def __new__(mcls, name, bases, namespace):
            namespace["order"] = [k for k in namespace if not k.startswith("__")]
            return super().__new__(mcls, name, bases, dict(namespace))

    class Record(metaclass=Ordered):
        b = 1
        a = 2

    return Record.prepared, Record.order, x + Record.a


@case(call(ramp(2)))
def metaclass_that_is_a_function(x):
    def build(name, bases, namespace):
        return {"name": name, "keys": sorted(k for k in namespace if not k.startswith("__"))}

    class NotAClass(metaclass=build):
        one = 1
        two = 2

    return NotAClass, x + len(NotAClass["keys"])


@case(call(ramp(2)))
def metaclass_instancecheck(x):
    class Quacks(type):
        def __instancecheck__(cls, thing):
            return hasattr(thing, "quack")

        def __subclasscheck__(cls, kind):
            return kind.__name__.startswith("D")

    class Duck(metaclass=Quacks):
        pass

    class Dog:
        quack = 1

    return isinstance(Dog(), Duck), isinstance(3, Duck), issubclass(Dog, Duck), issubclass(int, Duck), x + 1


@case(call(ramp(2)))
def metaclass_conflict(x):
    y = x + 1

    class Bad(Model, Settings):
        pass

    return y


@case(call(ramp(2)))
def init_subclass_error(x):
    y = x + 1

    class Bad(Plugin, unknown=1):
        pass

    return y


@case(call(ramp(2)))
def mro_entries(x):
    class Stand:
        def __mro_entries__(self, bases):
            return (Vector,)

    class Local(Stand()):
        pass

    return Local.__mro__[1].__name__, Local.__orig_bases__[0].__class__.__name__, x + 1


@case(call(ramp(2)))
def new_controls_creation(x):
    class Even(int):
        def __new__(cls, value):
            return super().__new__(cls, value * 2)

    class Other:
        def __new__(cls, kind):
            return "a string" if kind == "s" else super().__new__(cls)

        def __init__(self, kind):
            self.kind = kind

    return Even(4) + x, type(Even(1)).__name__, Other("s"), Other("o").kind


@case(call(ramp(2)))
def metaclass_iteration(x):
    class Members(type):
        def __iter__(cls):
            return iter(sorted(k for k in vars(cls) if not k.startswith("_")))

        def __contains__(cls, name):
            return name in vars(cls)

        def __getitem__(cls, name):
            return vars(cls)[name]

    class Colours(metaclass=Members):
        red = 1
        blue = 2

    return list(Colours), "red" in Colours, Colours["blue"] + x


class Base:
    """A class from outside that others are made from."""


class Counting(type):
    def __new__(mcls, name, bases, namespace):
        return super().__new__(mcls, name, bases, dict(namespace, counted=True))


@case(call(ramp(2)))
def classes_made_by_calls_belong_to_this_module(x):
    plain, derived, error = type("Plain", (), {}), type("Derived", (Base,), {"n": 2}), type("E", (ValueError,), {})
    named = type("Named", (Base,), {"__module__": "elsewhere"})
    counted = Counting("Counted", (), {"a": 1})
    modules = [cls.__module__ for cls in (plain, derived, error, named, counted, types.new_class("New", (Base,)))]
    return modules, list(vars(derived))[:2], repr(derived), x * derived.n


@case(call(ramp(2)), breaks="object.__getattribute__ of a class")
def a_class_read_as_an_object(x):
    class Child(Base):
        n = 3

    try:
        object.__getattribute__(Base, "n")
    except AttributeError as error:
        said = str(error)
    return object.__getattribute__(Child, "n") * x, object.__getattribute__(Base, "__doc__"), said


class Shown(types.ModuleType):
    __dict__ = property(lambda self: f"what {self.__name__} shows")


SHOWN = Shown("shown")


@case(call(ramp(2)))
def a_module_with_a_dict_of_its_own_making(x):
    return SHOWN.__dict__, x + 1


class Titled(type):
    title = property(lambda cls: cls.__name__.title())


@case(call(ramp(2)), breaks="it asks for one")
def a_property_stays_itself_over_a_break(x):
    kept, pair = Titled.title, (1, Titled.title)
    stator.graph_break()
    return kept is Titled.__dict__["title"], kept == Titled.title, pair == (1, Titled.title), x + 1


@case(call(ramp(2)), call(ramp(3)))
def classes_that_deny_themselves(x):
    class Denying(type):
        def __subclasscheck__(cls, sub):
            return False

        def __instancecheck__(cls, obj):
            return False

    class Base(metaclass=Denying):
        pass

    class Derived(Base):
        pass

    class Hooked(metaclass=abc.ABCMeta):
        @classmethod
        def __subclasshook__(cls, sub):
            return "there" in sub.__dict__

    return (issubclass(Base, Base), issubclass(Derived, Base), issubclass(Base, (int, Base)), isinstance(Base(), Base),
            isinstance(Derived(), Base), issubclass(Hooked, Hooked), isinstance(Hooked(), Hooked), x + 1)  # fmt: skip


@case(call(ramp(2)), call(ramp(3)))
def classes_that_are_registered(x):
    class Shape(metaclass=abc.ABCMeta):
        pass

    class Round:
        pass

    before = issubclass(Round, Shape)
    registered = Shape.register(Round)
    try:
        Shape.register(3)
    except TypeError as error:
        said = str(error)

    class Ball(Round):
        pass

    return (before, registered is Round, issubclass(Round, Shape), isinstance(Ball(), Shape), said,
            [isinstance(each, Shape) for each in (Round(), 3)], x + 1)  # fmt: skip


def test_a_registration_leaves_with_its_class():
    def made():
        class Shape(metaclass=abc.ABCMeta):
            pass

        Shape.register(int)
        return Shape, Shape.__name__

    shape, _ = stator.compile(made, backend="eager", fullgraph=True)()
    assert isinstance(3, shape) and not isinstance("3", shape)
