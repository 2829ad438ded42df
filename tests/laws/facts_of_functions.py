"""Probes: names and texts of functions, modules made inside, code made of text, filters of warnings, records of numpy."""

from __future__ import annotations

import functools
import types
import warnings

import numpy as np
from probing import Scene, probe, ramp
from scenery import one


@probe()
def names_of_a_function_made_inside():
    def fn(x):
        def inner(y):
            """A text."""
            return y + 1

        inner.__name__, inner.__qualname__, inner.__doc__, inner.extra = "other", "q.other", "new", 3
        return inner(x), inner.__name__, inner.__qualname__, inner.__doc__, inner.extra, inner

    return Scene(fn, one(ramp()))


@probe("SB006")
def names_of_an_outside_function_set():
    def inner(y):
        return y + 1

    def fn(x):
        inner.__name__, inner.__qualname__, inner.__doc__ = "other", "q.other", "new"
        return inner(x), inner.__name__, inner.__qualname__, inner.__doc__

    return Scene(fn, one(ramp()), lambda: setattr(inner, "__name__", "again"),
                 lambda: (inner.__name__, inner.__qualname__, inner.__doc__))


@probe()
def names_of_an_outside_function_read():
    def inner(y):
        return y + 1

    def change():
        inner.__name__, inner.__qualname__, inner.__doc__, inner.__module__ = "z", "zz", "text", "elsewhere"

    return Scene(lambda x: (inner(x), inner.__name__, inner.__qualname__, inner.__doc__, inner.__module__), one(ramp()),
                 change)


@probe("SB006")
def defaults_and_code_set_inside():
    def inner(y, k=2):
        return y * k

    def other(y, k=2):
        return y + k

    def fn(x):
        first = inner(x)
        inner.__defaults__ = (5,)
        second = inner(x)
        inner.__code__ = other.__code__
        return first, second, inner(x)

    return Scene(fn, one(ramp()), lambda: setattr(inner, "__defaults__", (7,)), lambda: (inner.__defaults__, inner(2)))


@probe()
def class_ordered_inside():
    def fn(x):
        @functools.total_ordering
        class Version:
            def __init__(self, n):
                self.n = n

            def __eq__(self, other):
                return self.n == other.n

            def __lt__(self, other):
                return self.n < other.n

        first, second = Version(1), Version(2)
        return x + 1, first < second, first <= second, first > second, first >= second, max(first, second).n

    Scene(fn, one(ramp())).fn(ramp())  # the first use gives functools' own functions their names
    return Scene(fn, one(ramp()))


@probe()
def module_made_inside():
    def fn(x):
        made = types.ModuleType("made", "a text")
        made.scale, made.items, made.gone = x * 2, [1], 3
        made.items.append(2)
        made.__getattr__ = lambda name: len(name)
        del made.gone
        names = sorted(made.__dict__)
        return made.scale, made.items, made.__name__, made.__doc__, made.missing, names, made

    return Scene(fn, one(ramp()))


@probe()
def outside_module_written():
    module = types.ModuleType("module")
    module.k, module.last = 2, None

    def fn(x):
        module.k += 1
        module.last = x
        return x * module.k

    return Scene(fn, one(ramp()), lambda: setattr(module, "k", 10), lambda: (module.k, module.last))


class Reaching(list):
    """Reaches its attributes through its base."""

    def __getattribute__(self, name):
        return list.__getattribute__(self, name)


@probe()
def attributes_through_a_base():
    items = Reaching([1, 2])
    items.k = 3

    def fn(x):
        items.k += 1
        items.append(3)
        try:
            list.__getattribute__(3, "k")
        except TypeError as error:
            text = str(error)
        return x * items.k, len(items), text

    return Scene(fn, one(ramp()), lambda: setattr(items, "k", 7), lambda: (list(items), vars(items)))


@probe()
def code_made_of_text():
    scale = 3

    def fn(x):
        names = {"x": x}
        exec("y = x * 2\ndef double(z):\n    return z * 2\n", names)
        try:
            eval("1 +")
        except SyntaxError as error:
            text = str(error)
        return eval("x * 2 + 1"), eval("k", {"k": scale}), names["y"], names["double"](x), text

    return Scene(fn, one(ramp()))


@probe("SB006 SB013 SB015")
def filters_of_warnings():
    def fn(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.warn("recorded", UserWarning, stacklevel=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                warnings.warn("raised", stacklevel=1)
            except UserWarning as error:
                text = str(error)
        warnings.warn("after", stacklevel=1)
        return x + 1, [str(each.message) for each in seen], text

    return Scene(fn, one(ramp()), look=lambda: list(warnings.filters))


@probe("SB005")
def records_of_numpy():
    table = np.array([(1, 2.5), (3, 4.5)], dtype=[("i", "i4"), ("f", "f8")])

    def fn(x):
        table["i"][1] += 2
        table[0] = (5, 6.5)
        made = np.zeros(2, dtype=table.dtype)
        made["i"] = np.arange(2)
        return x * float(table["f"][0]) + int(table["i"][1]), made, table.dtype.names

    return Scene(fn, one(ramp()), lambda: table["f"].__setitem__(0, 9.0), lambda: table)
