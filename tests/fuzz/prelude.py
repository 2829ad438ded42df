"""The fixed opening of every generated program, and the inputs of its calls.

In: nothing.  Out: `PRELUDE`, the text of the classes, helpers and globals that generated statements use.
`inputs(k)` of that text makes the arguments of call number k; call 1 repeats call 0.
"""

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


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, -1.0, 0.5]))
        self.register_buffer("shift", torch.ones(4))
        self.steps = 0
        self.scale = 2.0

    def forward(self, x):
        if self.training:
            self.steps += 1
            self.shift += 1
        return (x * self.weight + self.shift) * self.scale


G_LAYER = Layer()
G_OPT = torch.optim.SGD(G_LAYER.parameters(), lr=0.125, momentum=0.5)
G_ADAM = torch.optim.Adam([torch.nn.Parameter(torch.ones(4))], lr=0.5, foreach=True)
G_GRADS, G_LOG = [], writers.LOG


def seen_gradient(grad):
    G_GRADS.append(float(grad.sum()))
    return grad * 2


def train(x, layer, optimizer):
    optimizer.zero_grad()
    loss = (layer(x) ** 2).mean()
    if loss.requires_grad:
        loss.backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 4.0)
        optimizer.step()
    return loss.detach()


def limited(limit, x):
    x.add_(1)
    return 1 if limit.sum().item() > 6 else 2


def face_of(tensor):
    return tensor.detach().numpy()


def same_address(one, other):
    """Both live while they are compared: the address of a dead tensor says nothing."""
    return one.data_ptr() == other.data_ptr()


def same_storage(one, other):
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def reseated(vec):
    """On the same memory, and never beyond its end."""
    return torch.tensor([]).set_(vec.untyped_storage(), vec.storage_offset(), vec.shape, vec.stride())


def share_memory(k):
    """Two names for one memory in some calls, for two memories in others: tensors, faces, cells, an object and its dict."""
    global G_ARRAY, G_FACE, G_BYTES, G_BUFFER, G_SHORTS, G_ONE, G_TWO, G_READ, G_WRITE, G_NS, G_VARS
    shared = k in (2, 4)
    G_ARRAY = numpy.array([1.0, 2.0, 3.0, k], dtype=numpy.float32)
    G_FACE = torch.from_numpy(G_ARRAY if shared else G_ARRAY.copy())
    G_BYTES = bytearray(numpy.arange(4, dtype=numpy.float32).tobytes())
    G_BUFFER = torch.frombuffer(G_BYTES if shared else bytearray(G_BYTES), dtype=torch.float32)
    G_SHORTS = array.array("f", [1.0, 0.0, 2.0, k])
    G_ONE = torch.tensor([2.0, 1.0, -1.0, k])
    G_TWO = G_ONE if shared else G_ONE.view(2, 2).view(4) if k == 3 else G_ONE + 1
    G_READ, G_WRITE = writers.cells(k, shared)
    G_NS = types.SimpleNamespace(v=k, w=2)
    G_VARS = vars(G_NS) if shared else {"v": k, "w": 3}
    G_LAYER.weight.requires_grad_(k != 3)
    writers.LOG.clear()
    G_GRADS.clear()
    (writers.patch_methods if k == 3 else writers.restore_methods)()


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
    share_memory(k)
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
