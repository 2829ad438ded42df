"""The fixed opening of every generated program, and the inputs of its calls.

In: nothing.  Out: `PRELUDE`, the text of the classes, helpers and globals that generated statements use.
`inputs(k)` of that text makes the arguments of call number k; call 1 repeats call 0.
"""

PRELUDE = '''\
import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import operator
import stator
import torch

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


class Ready:
    def __init__(self, value):
        self.value = value

    def __await__(self):
        got = yield self.value
        return got + self.value

    async def __aenter__(self):
        await Ready(1)
        return self

    async def __aexit__(self, kind, value, tb):
        print("left", kind.__name__ if kind else None)
        return kind is Oops


async def later(v):
    return await Ready(v) + 1


async def adds(a, b):
    async with Ready(a) as ready:
        return ready.value + await later(b)


async def ticks(count):
    for i in range(count):
        await Ready(i)
        yield i


async def collected(count):
    return [i + 1 async for i in ticks(count)]


async def guarded(v):
    async with Ready(v):
        print(await later(v))
        checked(v)


def drive(coroutine):
    sent = None
    while True:
        try:
            sent = coroutine.send(sent)
        except StopIteration as stop:
            return stop.value


def stars(*args, k=1, **more):
    return len(args) * 10 + k + len(more)


def posonly(x, /, y=2):
    return x * 2 + y


def kwonly(*, y):
    return y + 1


def adder(step):
    def add(v):
        nonlocal step
        step += 1
        return v + step
    return add


@functools.lru_cache(maxsize=None)
def cached(v):
    return v * 3


def set_globals(v):
    global G_STEP, G_RATE
    G_STEP, G_RATE = v, v / 2


def inputs(k):
    global G_STEP, G_RATE, G_PARAM
    torch.manual_seed(k)
    G_STEP, G_RATE = (1, 1, 1, 2, 3)[k], (0.5, 0.5, 0.25, 2.0, 4.5)[k]
    G_PARAM = torch.tensor([1.0, -2.0, 3.0, k], requires_grad=True)
    rows = (3, 3, 3, 5, 2)[k]
    mat = (torch.randn(rows, 4) * 4).round()
    vec = mat[1] if k == 2 else (torch.randn(4) * 4).round()
    ivec = torch.randint(-5, 9, (4,))
    items = [4, 1, 3] if k < 3 else [7, 2, 5, 6]
    table = {"a": 5, "c": 1} if k != 4 else {"b": 2, "a": 9}
    point = Late(4, 2) if k == 4 else Point((2, 2, 2, 3, 5)[k], 2)
    if k == 3:
        point.items = items
    return mat, vec, ivec, (5, 5, 6, 8, 3)[k], k % 2 == 0, items, table, point


'''
