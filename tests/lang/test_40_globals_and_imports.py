"""Global names, builtins looked up as globals, and import statements inside functions."""

import math
import sys
import types

import torch

from curriculum import call, case, ramp

counter = 0
settings = {"scale": 2, "names": []}
weights = torch.tensor([1.0, 2.0])
factor = 3


class State:
    step = 0
    history = []


def bump(by=1):
    global counter
    counter += by
    return counter


def shadowing(x):
    len = lambda v: 100
    return len(x)


@case()
def read_and_write(x):
    global counter
    counter = counter + 1
    return x + counter


@case()
def through_a_helper(x):
    return x + bump() + bump(10), counter


@case()
def mutate_a_global_dict(x):
    settings["scale"] += 1
    settings["names"].append(x.shape[0])
    settings[x.dim()] = "new"
    return x * settings["scale"]


@case(call(ramp(2)), call(ramp(2, start=5.0)))
def global_tensor_is_written(x):
    weights.add_(1)
    return x * weights


@case(call(ramp(2)))
def global_tensor_is_replaced(x):
    global weights
    weights = weights * x
    return weights + 1


@case()
def class_as_a_namespace(x):
    State.step += 1
    State.history.append(State.step)
    return x + State.step


@case(call(ramp(2)))
def global_appears(x):
    global appeared
    try:
        before = appeared
    except NameError as error:
        before = str(error)
    appeared = x.dim()
    return before, x + appeared


@case(call(ramp(2)))
def import_statement(x):
    import math

    return x * math.floor(2.7)


@case(call(ramp(2)))
def import_forms(x):
    import collections.abc
    import os.path as osp
    from collections import OrderedDict
    from collections import deque as dq
    from math import pi

    return isinstance([], collections.abc.Sequence), osp.join("a", "b"), OrderedDict(a=1), dq([1]), x * pi


@case(call(ramp(2)))
def import_torch_inside(x):
    import torch.nn.functional as F
    from torch import nn

    return F.relu(x), nn.ReLU()(x)


@case(call(ramp(2)))
def import_error(x):
    y = x + 1
    try:
        import a_module_that_does_not_exist  # noqa: F401
    except ImportError as error:
        return type(error).__name__, str(error), y


@case(call(ramp(2)))
def import_of_a_missing_name(x):
    y = x + 1
    try:
        from math import no_such_function  # noqa: F401
    except ImportError as error:
        return str(error).split(" (")[0], y


@case(call(ramp(2)))
def module_attributes(x):
    return math.pi > 3, math.sqrt(16) + x, sys.version_info >= (3, 11), torch.float32.itemsize, __name__


@case(call(ramp(2)))
def shadowed_builtin(x):
    return shadowing(x), len(x), x + 1


@case(call(ramp(2)))
def globals_and_locals(x):
    y = 3
    names = sorted(locals())
    return names, globals()["factor"] + x, "counter" in globals(), globals() is sys.modules[__name__].__dict__


@case(call(ramp(2)))
def global_declared_in_a_nested_function(x):
    factor = 100

    def inner():
        global factor
        factor += 1
        return factor

    return inner(), factor, x + 1


@case(call(ramp(2), 1), call(ramp(2), 2))
def names_without_an_argument(x, n):
    class Body:
        p = 1
        names = dir()
    y = 3
    return dir(), Body.names, [dir() for _ in range(2)], (lambda a: dir())(1), x + n


@case(call(ramp(2), 1), call(ramp(2), 2))
def the_dict_of_locals_is_filled_again(x, n):
    d = locals()
    d["n"], d["mine"] = 99, 1
    before = sorted(d)
    y = x + n
    e = locals()
    del y
    names = vars(), dir()
    return before, sorted(d), d["n"], d is e, d is names[0], n, x


@case(call(ramp(2)), call(ramp(3)))
def modules_that_the_program_registers(x):
    made = types.ModuleType("made_inside")
    made.scale = 3
    before, sys.modules["made_inside"] = sys.modules["math"], made
    sys.modules["math"] = made
    try:
        import math as swapped

        import made_inside
        from made_inside import scale

        return made_inside is made, swapped is made, x * scale
    finally:
        sys.modules["math"] = before
        del sys.modules["made_inside"]
