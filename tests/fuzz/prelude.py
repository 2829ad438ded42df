"""The fixed opening of every generated program.

In: nothing.  Out: `PRELUDE`, the text of the classes, helpers and globals that generated statements use: those of
plain Python here, models, memory, coroutines and inputs from `tensor_prelude.py`.
"""

from tests.fuzz.tensor_prelude import TENSOR_PRELUDE

PRELUDE = '''\
import array
import bisect
import collections
import collections.abc
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import itertools
import math
import numpy
import operator
import statistics
import string
import stator
import torch
import torch.nn.functional as F
import types
import typing

from tests.fuzz import writers

writers.restore_methods()
G_COUNT = 3
G_STEP = 1
G_RATE = 0.5
G_DEQUE = collections.deque([1, 2])
G_PARAM = torch.ones(4, requires_grad=True)
G_LIST = [1, 2, 3]
G_TABLE = {"a": 1, "b": 2}


class Oops(Exception):
    pass


class Point:
    made = 0
    tags = ["t"]

    def __init__(self, x, y):
        self.x = x
        self.y = y
        Point.made += 1

    def __add__(self, other):
        if isinstance(other, Point):
            return Point(self.x + other.x, self.y + other.y)
        return NotImplemented

    def __radd__(self, other):
        return Point(self.x + other, self.y)

    def __iadd__(self, other):
        self.x += other
        return self

    def __eq__(self, other):
        return isinstance(other, Point) and self.x == other.x

    def __hash__(self):
        return hash(self.x)

    def __lt__(self, other):
        return self.x < other.x

    def __repr__(self):
        return f"P({self.x}, {self.y})"

    def __len__(self):
        return abs(self.x) % 4

    def __getitem__(self, key):
        if key > 2:
            raise IndexError("point " + str(key))
        return self.x + key

    def __setitem__(self, key, value):
        self.y += key * value

    def __contains__(self, item):
        return item == self.x

    def __call__(self, k):
        return self.x * 2 + k

    @property
    def total(self):
        return self.x + self.y

    @total.setter
    def total(self, value):
        self.x = value - self.y

    def bump(self, k=1):
        self.x += k
        return self

    @property
    def bump_by(self):
        return self.bump

    @classmethod
    def origin(cls):
        return cls(0, 1)

    @staticmethod
    def clip(v):
        return v % 50


class Late(Point):
    def __getattr__(self, name):
        if name.startswith("auto_"):
            return len(name) + self.x
        raise AttributeError(name)

    def bump(self, k=1):
        super().bump(k + 1)
        return self

    def __bool__(self):
        return self.x > 3


class Slotted:
    __slots__ = ("v", "w")

    def __init__(self, v):
        self.v = v

    def __enter__(self):
        self.v += 1
        return self

    def __exit__(self, kind, value, tb):
        print("exit", self.v, kind.__name__ if kind else None)
        self.v += 10
        return self.v % 3 == 0 and kind is not None


@contextlib.contextmanager
def managed(log, name):
    log.append(name)
    try:
        yield len(log)
    except Oops:
        log.append("oops")
    finally:
        log.append(-1)


def count_up(start, stop):
    try:
        for i in range(start, stop):
            got = yield i
            if got:
                print("got", got)
    finally:
        G_LIST.append(stop)


def chain(*parts):
    for part in parts:
        yield from part
    return len(parts)


def bump_global(k):
    global G_COUNT
    G_COUNT = (G_COUNT + k) % 101
    return G_COUNT


def default_grows(v, seen=[]):
    seen.append(v)
    return len(seen)


def checked(v):
    if v % 3 == 0:
        raise Oops(f"bad {v}")
    return v + 1


class Meta(type):
    def __call__(cls, *args):
        cls.count += 1
        return super().__call__(*args)

    def __len__(cls):
        return cls.count

    def __getattr__(cls, name):
        if name.startswith("kind_"):
            return len(name)
        raise AttributeError(name)


class Counted(metaclass=Meta):
    __slots__ = ("v", "level")
    count = 0

    def __init__(self, v):
        self.v = v
        self.level = v % 5

    @classmethod
    def made_by(cls, v):
        return cls(v + 1)

    def __repr__(self):
        return f"Counted({self.v})"

    def __int__(self):
        return self.v

    def __iter__(self):
        return iter((self.v, self.level))


class Clamped:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return getattr(instance, self.name, -1)

    def __set__(self, instance, value):
        setattr(instance, self.name, min(max(value, 0), type(instance).top))

    def __delete__(self, instance):
        delattr(instance, self.name)


class Gauge:
    top = 9
    level = Clamped()

    def __init__(self, level):
        self.level = level

    def __index__(self):
        return self.level % 3

    def __int__(self):
        return self.level

    def __format__(self, spec):
        return f"gauge {self.level:{spec}}"

    def __iter__(self):
        yield self.level
        yield self.top

    def __repr__(self):
        return f"Gauge({self.level})"


@dataclasses.dataclass
class Boxed:
    level: int
    held: list = dataclasses.field(default_factory=list)
    c: int = 3

    def __post_init__(self):
        self.c += self.level

    def __int__(self):
        return self.c

    def __iter__(self):
        return iter(self.held)


@dataclasses.dataclass(frozen=True, order=True)
class Pair:
    left: int
    right: int = 2

    @functools.cached_property
    def both(self):
        return self.left, self.right


class Defaulting(dict):
    def __missing__(self, key):
        self[key] = len(key)
        return self[key]


G_GAUGE = Gauge(4)


class Colour(enum.IntEnum):
    RED = 1
    GREEN = 2
    BLUE = 3


class Mood(enum.Enum):
    CALM = 1
    LOUD = 2
    QUIET = 1

    @property
    def doubled(self):
        return self.value * 2

    @classmethod
    def of(cls, v):
        return cls.LOUD if v > 3 else cls.CALM


class Mode(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Row(typing.NamedTuple):
    a: int
    b: int = 3

    @property
    def total(self):
        return self.a + self.b


@functools.total_ordering
class Ranked:
    def __init__(self, rank):
        self.rank = rank

    def __eq__(self, other):
        return self.rank == other.rank

    def __lt__(self, other):
        return self.rank < other.rank


def tracing(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return fn(*args, **kwargs)
    wrapper.calls = 0
    return wrapper


def repeated(times, *, step=1):
    def decorate(fn):
        def run(v):
            for _ in range(times):
                v = fn(v) + step
            return v
        return run
    return decorate


@tracing
def traced(v, w=1):
    return v + w


@repeated(3, step=2)
@tracing
def thrice(v):
    return v % 13


class Base:
    registered = []

    def __init_subclass__(cls, tag=0, **more):
        super().__init_subclass__(**more)
        Base.registered.append(tag)

    def __class_getitem__(cls, item):
        return f"{cls.__name__}[{item}]"


class Plugin(Base, tag=7):
    squares = [i * i for i in range(3)]
    for each in squares:
        last = each
    del each


class Guarded:
    def __init__(self, level):
        object.__setattr__(self, "level", level)

    def __setattr__(self, name, value):
        if name == "locked":
            raise AttributeError("no " + name)
        print("set", name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        print("delete", name)
        object.__delattr__(self, name)

    def __getattribute__(self, name):
        if name == "seen":
            return object.__getattribute__(self, "level") + 1
        return object.__getattribute__(self, name)


class Vec2:
    __slots__ = ("x", "y")
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __matmul__(self, other):
        return self.x * other.x + self.y * other.y

    def __rmul__(self, k):
        return Vec2(self.x * k, self.y * k)

    def __neg__(self):
        return Vec2(-self.x, -self.y)

    def __invert__(self):
        return Vec2(self.y, self.x)

    def __abs__(self):
        return abs(self.x) + abs(self.y)

    def __round__(self, digits=None):
        return self.x // 2 * 2

    def __iter__(self):
        yield from (self.x, self.y)

    def shifted(self, k):
        return self.x + k


class Ring(collections.abc.Sequence):
    def __init__(self, items, length):
        self.items, self.length = items, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        return self.items[index % len(self.items)]


@functools.singledispatch
def spoken(v):
    return 0


@spoken.register
def _(v: int):
    return v * 3


@spoken.register(list)
def _(v):
    return len(v)


''' + TENSOR_PRELUDE
