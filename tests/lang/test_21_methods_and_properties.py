"""classmethod, staticmethod, property (get, set, delete), cached_property."""

import functools

import torch

from curriculum import call, case, ramp


class Temperature:
    unit = "C"
    made = 0

    def __init__(self, celsius):
        self._celsius = celsius
        self.log = []

    @property
    def fahrenheit(self):
        """Degrees Fahrenheit."""
        self.log.append("get")
        return self._celsius * 9 / 5 + 32

    @fahrenheit.setter
    def fahrenheit(self, value):
        self.log.append("set")
        self._celsius = (value - 32) * 5 / 9

    @fahrenheit.deleter
    def fahrenheit(self):
        self.log.append("del")
        self._celsius = 0

    @property
    def frozen(self):
        return self._celsius + 1

    @property
    def broken(self):
        return self._missing

    @classmethod
    def from_kelvin(cls, k):
        cls.made += 1
        return cls(k - 273)

    @staticmethod
    def double(v, times=2):
        return v * times

    @functools.cached_property
    def costly(self):
        self.log.append("computed")
        return self._celsius * 100


class Special(Temperature):
    unit = "S"

    @property
    def frozen(self):
        return super().frozen * 10


@case(lambda: call(Temperature(ramp(2))), lambda: call(Temperature(ramp(3))))
def property_get_and_set(t):
    before = t.fahrenheit
    t.fahrenheit = before + 9
    return t._celsius


@case(lambda: call(Temperature(20), ramp(2)))
def property_delete(t, x):
    del t.fahrenheit
    return x + t._celsius, t.log


@case(lambda: call(Temperature(20), ramp(2)))
def property_without_setter(t, x):
    y = x + t.frozen
    t.frozen = 3
    return y


@case(lambda: call(Temperature(20), ramp(2)))
def property_without_deleter(t, x):
    try:
        del t.frozen
    except AttributeError as error:
        return str(error), x + t.frozen


@case(lambda: call(Temperature(20), ramp(2)))
def property_that_raises(t, x):
    found = hasattr(t, "broken"), getattr(t, "broken", "default")
    return found, x + t.broken


@case()
def class_methods(x):
    t = Temperature.from_kelvin(300)
    s = Special.from_kelvin(280)
    via_instance = s.from_kelvin(273)
    return x + t._celsius, type(s).__name__, via_instance._celsius, Temperature.made, Special.made


@case()
def static_methods(x):
    return Temperature.double(x), Temperature(1).double(x, times=3), Special.double(2), Temperature.__dict__["double"].__func__(4)


@case(lambda: call(Special(ramp(2))))
def overridden_property(s):
    return s.frozen, Temperature.frozen.fget(s), s.unit


@case(lambda: call(Temperature(ramp(2))))
def cached(t):
    first = t.costly
    second = t.costly
    return first is second, t.log, "costly" in vars(t), first + 1


@case(call(ramp(2)))
def property_object(x):
    prop = Temperature.fahrenheit
    return prop.__doc__, prop.fget.__name__, prop.fset is not None, isinstance(prop, property), x + 1


@case(call(ramp(2)))
def property_built_by_hand(x):
    class Local:
        def _get(self):
            return self.__dict__.get("v", 0)

        def _set(self, value):
            self.__dict__["v"] = value * 2

        v = property(_get, _set)

    local = Local()
    local.v = x
    local.v += 1
    return local.v


@case(lambda: call(Temperature(5), ramp(2)))
def instance_dict_does_not_hide_a_property(t, x):
    t.__dict__["frozen"] = "hidden"
    t.__dict__["double"] = "shown"
    return t.frozen + x, t.double


@case(call(ramp(2)))
def class_method_on_alternative_constructor(x):
    class Matrix:
        def __init__(self, data):
            self.data = data

        @classmethod
        def eye(cls, n):
            return cls(torch.eye(n))

        @staticmethod
        def check(n):
            assert n > 0, f"bad {n}"
            return n

    return Matrix.eye(Matrix.check(2)).data @ x


@case(call(ramp(2)))
def property_without_getter(x):
    class Sink:
        level = property(None, lambda self, value: print("set", value))

    class Deeper(Sink):
        pass

    sink = Deeper()
    sink.level = 3
    try:
        return sink.level
    except AttributeError as error:
        return str(error), x + 1
