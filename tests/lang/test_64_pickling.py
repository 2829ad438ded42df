"""pickle of objects: their bytes, and what is made of them, are those of the C code of pickle."""

import collections
import copyreg
import fractions
import itertools
import pickle
import warnings

from curriculum import call, case, ramp

Point = collections.namedtuple("Point", "x y")


class Plain:
    def __init__(self, value):
        self.value, self.parts = value, ["a", 2.5, None]


class Slotted:
    __slots__ = ("first", "second")


class Reduced:
    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return Reduced, (self.value + 1,), None


class WithState(list):
    def __getstate__(self):
        return {"kept": self.kept}

    def __setstate__(self, state):
        self.kept = state["kept"] * 2


class New:
    def __new__(cls, a, *, b):
        self = super().__new__(cls)
        self.sum = a + b
        return self

    def __getnewargs_ex__(self):
        return (1,), {"b": 2}


class Registered:
    def __init__(self, value):
        self.value = value


copyreg.pickle(Registered, lambda obj: (Registered, (obj.value * 10,)))


@case(call(3), call(4), graphs=0)
def every_protocol(n):
    found = []
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps(Plain(n), protocol)
        copy = pickle.loads(data)
        found.append((data, type(copy) is Plain, copy.value, copy.parts))
    return found


@case(call(3), call(4), graphs=0)
def ways_to_be_reduced(n):
    slotted = Slotted()
    slotted.first = n
    state = WithState([n])
    state.kept = n
    made = [pickle.dumps(each) for each in (slotted, Reduced(n), state, New(n, b=1), Registered(n), Point(n, 1))]
    copies = [pickle.loads(data) for data in made]
    return (made, copies[0].first, hasattr(copies[0], "second"), copies[1].value, copies[2], copies[2].kept,
            copies[3].sum, copies[4].value, copies[5])  # fmt: skip


@case(call(Plain(3)), call(Plain([4])), graphs=0)
def objects_from_outside(obj):
    data = pickle.dumps({"obj": obj, "again": obj})
    obj.value = 0
    copy = pickle.loads(data)
    return data, copy["obj"] is copy["again"], copy["obj"] is obj, copy["obj"].value


@case(call(3), graphs=0)
def types_of_the_library(n):
    values = [{n}, frozenset([n]), collections.OrderedDict(a=n), collections.deque([n], 3), collections.Counter("aab"),
              collections.defaultdict(list, {n: [1]}), fractions.Fraction(1, n), range(n), slice(n), 2 + 3j,
              bytearray(b"ab"), len, Plain, Ellipsis, ValueError("x", n)]  # fmt: skip
    made = [pickle.dumps(value) for value in values]
    return made, [repr(pickle.loads(data)) for data in made[:-4]]


@case(call(3), graphs=0)
def iterators(n):
    walks = [iter([1, n]), iter((n,)), iter("ab"), reversed([1, n]), enumerate([n]), iter({n: 1}), zip([1], [n]),
             map(abs, [-n]), iter(range(n))]  # fmt: skip
    next(walks[0])
    return [list(pickle.loads(pickle.dumps(walk))) for walk in walks], [list(walk) for walk in walks]


@case(call(3), graphs=0)
def cycles_and_long_frames(n):
    obj = Plain(n)
    obj.me = [obj]
    copy = pickle.loads(pickle.dumps(obj))
    data = pickle.dumps([Plain("x" * 70_000), "y" * 66_000, b"z" * 70_000])
    return copy.me[0] is copy, len(data), hash(data), len(pickle.loads(data)[1])


@case(call(ramp(2), 3), graphs=2, breaks="SB001")
def an_error_breaks(x, n):
    y = x + 1
    try:
        pickle.dumps(lambda: n)
    except Exception as error:
        return y * 2, type(error).__name__


@case(call(3), call(4), graphs=0)
def a_warning_of_c_code_that_is_an_error(n):
    with warnings.catch_warnings():
        warnings.simplefilter("error", category=DeprecationWarning)
        try:
            return pickle.dumps(itertools.count(n))
        except (DeprecationWarning, TypeError) as error:  # TypeError: since CPython 3.14
            return type(error), str(error)
