"""The match statement: every kind of pattern."""

import dataclasses
import enum
from collections import OrderedDict, deque

import torch

from curriculum import call, case, ramp


@dataclasses.dataclass
class Point:
    x: object
    y: object


class Op:
    __match_args__ = ("name", "arg")

    def __init__(self, name, arg):
        self.name, self.arg = name, arg


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@case((ramp(2), 1), (ramp(2), "two"), (ramp(2), None), (ramp(2), 3.5), (ramp(2), -1), (ramp(2), True))
def literals(x, v):
    match v:
        case -1:
            return x - 1
        case True:
            return x + 100
        case 1:
            return x + 1
        case "two":
            return x + 2
        case None:
            return x
        case _:
            return x * v


@case((ramp(2), []), (ramp(2), [1]), (ramp(2), (1, 2)), (ramp(2), [1, 2, 3]), (ramp(2), "ab"), (ramp(2), range(2)))
def sequences(x, v):
    match v:
        case []:
            return x - 1, "empty"
        case [a]:
            return x + a, "one"
        case (a, b):
            return x + 1, a, b
        case [a, *rest]:
            return x + a, rest
        case _:
            return x * 2, "not a sequence"


@case((ramp(2), [1, 2, 3, 9]), (ramp(2), [9]), (ramp(2), [9, 9]))
def star_in_the_middle(x, v):
    match v:
        case [first, *middle, 9]:
            return x + first, middle
        case [*_, last]:
            return x + last, None


@case((ramp(2), {"op": "add", "n": 2}), (ramp(2), {"op": "mul", "n": 3, "z": 1}), (ramp(2), {}), (ramp(2), {"op": 5}))
def mappings(x, v):
    match v:
        case {"op": "add", "n": n}:
            return x + n
        case {"op": "mul", "n": n, **rest}:
            return x * n, rest
        case {"op": other}:
            return x, other
        case {}:
            return x, "any mapping"


@case(lambda: call(ramp(2), Point(0, 0)), lambda: call(ramp(2), Point(0, 5)), lambda: call(ramp(2), Point(1, 2)))
def classes(x, p):
    match p:
        case Point(x=0, y=0):
            return x - 1
        case Point(0, y):
            return x + y
        case Point(a, b):
            return x * a + b


@case(lambda: call(ramp(2), Op("add", 3)), lambda: call(ramp(2), Op("neg", None)), lambda: call(ramp(2), Op("?", 1)))
def match_args(x, op):
    match op:
        case Op("add", n):
            return x + n
        case Op("neg", None):
            return -x
        case Op(name, arg=object() as arg):
            raise ValueError(f"unknown {name} {arg}")


@case((ramp(2), 5), (ramp(2), -5), (ramp(2), 0), (ramp(2), "s"))
def guards(x, v):
    match v:
        case int(n) if n > 0:
            return x + n
        case int(n) if n < 0:
            return x - n
        case int() | float():
            return x
        case str() as s:
            return x * len(s)


@case((ramp(2), 1), (ramp(2), 3), (ramp(2), [1, "a"]), (ramp(2), ["b", 1]))
def or_patterns(x, v):
    match v:
        case 1 | 2:
            return x + 1
        case 3 | 4 as n:
            return x + n
        case [("a" | "b") as letter, _] | [_, ("a" | "b") as letter]:
            return x, letter


@case(lambda: call(ramp(2), Colour.RED), lambda: call(ramp(2), Colour.BLUE), lambda: call(ramp(2), 1))
def value_patterns(x, c):
    match c:
        case Colour.RED:
            return x + 1
        case Colour.BLUE:
            return x + 2
        case other:
            return x, other


@case(
    call(ramp(2), {"layers": [{"kind": "linear", "size": (2, 3)}, {"kind": "relu"}]}),
    call(ramp(2), {"layers": []}),
)
def nested(x, config):
    out = []
    match config:
        case {"layers": [*layers]}:
            for layer in layers:
                match layer:
                    case {"kind": "linear", "size": (n, m)}:
                        out.append(n * m)
                    case {"kind": str(kind)}:
                        out.append(kind)
    return x + len(out), out


@case((ramp(2), 7), (ramp(2), 8))
def no_case_matches(x, v):
    y = x
    match v:
        case 7:
            y = y + 1
    return y


@case(call(ramp(2)), call(ramp(2, 3)), call(ramp(2, 2, 2)))
def shape_of_a_tensor(x):
    match x.shape:
        case (n,):
            return x + n
        case (n, m):
            return x.sum(1) * m
        case (n, *rest):
            return x.reshape(n, -1), rest


@case(lambda: call(ramp(2), ramp(2)), lambda: call(ramp(2), [ramp(2)]), lambda: call(ramp(2), 3))
def type_dispatch(x, other):
    match other:
        case torch.Tensor():
            return x + other
        case [torch.Tensor() as t, *_]:
            return x * t
        case bool() | int() | float():
            return x - other


@case(call(ramp(2)))
def names_stay_bound_after_a_failed_pattern(x):
    match [1, 2, 3]:
        case [a, b, c] if c > 5:
            pass
        case [a, *_]:
            pass
    return a, b, c, x + a


@case(call(ramp(2)))
def too_many_positional_patterns(x):
    y = x + 1
    match Op("a", 1):
        case Op(a, b, c):
            return y


@case(call(ramp(2)))
def words_of_refused_patterns(x):
    told = []
    for subject, pattern in ((1, 3), (1, "x"), (deque(), deque), (OrderedDict(), OrderedDict), ({}, dict), (Op("a", 1), Op)):
        try:
            match subject:
                case pattern(_, _, _):
                    told.append("matched")
        except TypeError as error:
            told.append(str(error))
    return told, x + len(told)
