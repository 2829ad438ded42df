"""__str__, __repr__, __format__, __call__, __index__, __bool__, __sizeof__-free conversions."""

import torch

from curriculum import call, case, ramp


class Tag:
    def __init__(self, name, children=()):
        self.name = name
        self.children = list(children)

    def __repr__(self):
        return f"Tag({self.name!r}, {self.children!r})"

    def __str__(self):
        return f"<{self.name}>{''.join(map(str, self.children))}</{self.name}>"


class OnlyRepr:
    def __repr__(self):
        return "only repr"


class Pipeline:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, x):
        for step in self.steps:
            x = step(x)
        return x


@case(call(ramp(2)))
def str_and_repr(x):
    tag = Tag("a", [Tag("b"), "text"])
    return str(tag), repr(tag), f"{tag} {tag!r}", "%s|%r" % (tag, tag), [tag].__repr__(), str([tag]), x + len(str(tag))


@case(call(ramp(2)))
def str_falls_back_to_repr(x):
    return str(OnlyRepr()), f"{OnlyRepr()}", "{!s}".format(OnlyRepr()), str({"k": OnlyRepr()}), x + 1


@case(call(ramp(2)))
def default_repr(x):
    class Plain:
        pass

    text = repr(Plain())
    return text.startswith("<topic_28"), text.split(" at ")[0], repr(Plain)[:20], x + 1


@case(call(ramp(2)))
def str_must_return_a_string(x):
    class Bad:
        def __str__(self):
            return 5

    y = x + 1
    return str(Bad()), y


@case(call(ramp(2)))
def default_format_refuses_a_spec(x):
    y = x + 1
    return format(OnlyRepr(), ""), f"{OnlyRepr():>20}"


@case(call(ramp(2)))
def pipeline_of_callables(x):
    inner = Pipeline(torch.relu, lambda v: v + 1)
    return Pipeline(inner, inner, torch.neg)(x)


@case(lambda: call(Pipeline(torch.sin, torch.cos), ramp(2)), lambda: call(Pipeline(), ramp(2)))
def pipeline_argument(p, x):
    return p(x)


@case(call(ramp(2)))
def call_with_every_argument(x):
    class Recorder:
        def __call__(self, *args, **kwargs):
            return args, kwargs

    r = Recorder()
    return r(), r(1, *[2], k=x + 1), r.__call__(5), type(r).__call__(r, 6)


@case(call(ramp(2)))
def conversions(x):
    class Number:
        def __int__(self):
            return 3

        def __float__(self):
            return 3.5

        def __bool__(self):
            return False

        def __round__(self, n=0):
            return ("rounded", n)

        def __trunc__(self):
            return 9

        def __bytes__(self):
            return b"number"

        def __len__(self):
            return 4

    n = Number()
    return int(n), float(n), bool(n), round(n, 2), bytes(n), len(n), x + float(n)


@case(call(ramp(2)))
def index_method(x):
    class Two:
        def __index__(self):
            return 2

    two = Two()
    return list(range(two)), [1, 2, 3, 4][two:], "ab" * two, bin(two), x.reshape(two, 1), (1).__lshift__(2), [0] * two


@case(call(ramp(2)))
def index_must_be_an_int(x):
    class Bad:
        def __index__(self):
            return "two"

    y = x + 1
    return y, [1, 2][Bad()]


@case(call(ramp(2)))
def recursive_repr(x):
    items = [1]
    items.append(items)
    table = {}
    table["self"] = table
    return repr(items), repr(table), x + 1


@case(call(ramp(2)))
def instance_call_attribute_is_not_used(x):
    class Thing:
        pass

    thing = Thing()
    thing.__call__ = lambda: 1
    y = x + 1
    return y, callable(thing), thing()


class Described:
    """A descriptor."""

    def __get__(self, obj, cls):
        return lambda y, k=2: (cls.__name__, obj.n, y * k)


def scaled(y, k):
    return y * k


@case(call(ramp(2)))
def calls_that_are_no_plain_methods(x):
    class Static:
        __call__ = staticmethod(scaled)

    class OfClass:
        n = 3

        @classmethod
        def __call__(cls, y):
            return cls.__name__, y * cls.n

    class Bound:
        __call__ = Described()

        def __init__(self, n):
            self.n = n

    class Handed:
        __call__ = Bound(4)

    return Static()(x, 3), OfClass()(x), Bound(2)(x), Bound(3)(x, k=5), Handed()(x)


class Position:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


@case(*[call(ramp(4, 4), Position(n)) for n in (1, 2, 3, 1)])
def index_that_varies(x, n):
    return x[n:], x[1:n], x[n, None], x.narrow(0, 0, n), torch.zeros(n), x.reshape(n.number * 0 + 2, -1)


class Counting:
    def __init__(self):
        self.asked = []

    def __index__(self):
        self.asked.append(len(self.asked))
        return 1 + len(self.asked) % 2


@case(call(ramp(4, 4), Counting()))
def index_that_counts(x, n):
    return x[n:], x.narrow(0, 0, n), x.view(n, -1), x[n], x.repeat(n, 1), [1, 2, 3][n], n.asked
