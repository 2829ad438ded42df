"""enum: Enum, IntEnum, Flag, StrEnum, auto, methods, lookup."""

import enum

import torch

from curriculum import call, case, ramp


class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"
    DEFAULT = "sum"

    @property
    def short(self):
        return self.value[0]

    def apply(self, x):
        return x.sum() if self is Mode.SUM else x.mean()

    @classmethod
    def parse(cls, text):
        return cls(text.lower())


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Perm(enum.Flag):
    R = enum.auto()
    W = enum.auto()
    X = enum.auto()
    RW = R | W


class Text(enum.StrEnum):
    A = enum.auto()
    B = "bee"


@case(lambda: call(ramp(2), Mode.SUM), lambda: call(ramp(2), Mode.MEAN))
def argument(x, mode):
    return mode.apply(x), mode.short, mode.name, mode.value


@case(lambda: call(ramp(2), Mode.SUM), lambda: call(ramp(2), Mode.MEAN))
def comparisons(x, mode):
    if mode is Mode.SUM:
        return x + 1
    if mode == Mode.MEAN:
        return x + 2


@case((ramp(2), "SUM"), (ramp(2), "Mean"))
def lookup(x, text):
    mode = Mode.parse(text)
    return mode, Mode[text.upper()] is mode, mode.apply(x)


@case((ramp(2), "median"))
def unknown_value(x, text):
    y = x + 1
    return y, Mode(text)


@case(call(ramp(2)))
def unknown_name(x):
    y = x + 1
    return y, Mode["NONE"]


@case(call(ramp(2)))
def members(x):
    return list(Mode), len(Mode), Mode.DEFAULT is Mode.SUM, Mode.__members__["DEFAULT"], [m.name for m in Mode], Mode.SUM in Mode, x + len(Mode)


@case(lambda: call(ramp(2), Level.HIGH), lambda: call(ramp(2), Level.LOW))
def int_enum(x, level):
    return x * level, level > 5, level + 1, level == 10, Level(1).name, sorted([Level.HIGH, Level.LOW]), range(level)[-1]


@case(lambda: call(ramp(2), Perm.RW), lambda: call(ramp(2), Perm.X))
def flags(x, p):
    both = p | Perm.X
    return Perm.R in p, p & Perm.W, both, ~p, both.value, bool(p & Perm.R), x + both.value


@case(call(ramp(2)))
def str_enum(x):
    return Text.A, Text.B == "bee", Text.A.upper(), f"{Text.B}", {Text.A: 1}["a"], x + len(Text.B)


@case(call(ramp(2)))
def text_forms(x):
    return str(Mode.SUM), repr(Mode.SUM), f"{Mode.SUM}", f"{Level.LOW}", str(Level.LOW), repr(Perm.RW), x + 1


@case(call(ramp(2)))
def as_keys(x):
    table = {Mode.SUM: torch.sum, Mode.MEAN: torch.mean}
    return [table[m](x) for m in Mode], {m.value for m in Mode}, hash(Mode.SUM) == hash(Mode.SUM)


@case(call(ramp(2)))
def immutable(x):
    y = x + 1
    Mode.SUM.value = 3
    return y


@case(call(ramp(2)))
def enum_made_inside(x):
    class Local(enum.Enum):
        A = 1
        B = 2

    Functional = enum.Enum("Functional", "ONE TWO")
    return Local.A.value + x, Local(2).name, [m.name for m in Functional], Functional.TWO.value


@case(call(ramp(2)))
def identity_survives(x):
    table = {"mode": Mode.SUM, "items": [Mode.MEAN]}
    return table, table["mode"] is Mode.SUM, x * 2


class Flags(enum.IntFlag):
    LEFT = 1
    RIGHT = 2


class Rate(float):
    def __repr__(self):
        return f"rate {float(self)}"


@case(call(ramp(2), Rate(0.5)), call(ramp(2), Rate(1.5)))
def number_that_is_shown_otherwise(x, rate):
    return x * rate, torch.full((2,), rate), repr(rate)


@case(*[call(ramp(2), flags) for flags in (Flags.LEFT, Flags.RIGHT, Flags.LEFT | Flags.RIGHT)])
def flag_as_a_number(x, flags):
    return x * flags, torch.full((2,), flags), torch.tensor(flags), flags & 2
