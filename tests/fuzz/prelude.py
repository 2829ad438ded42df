"""The fixed opening of every generated program, and the inputs of its calls.

In: nothing.  Out: `PRELUDE`, the text of the classes, helpers and globals that generated statements use.
`inputs(k)` of that text makes the arguments of call number k; call 1 repeats call 0.
"""

PRELUDE = '''\
import contextlib
import stator
import torch

G_COUNT = 3
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


def inputs(k):
    torch.manual_seed(k)
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
