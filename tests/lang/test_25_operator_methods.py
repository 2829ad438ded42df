"""User operators: arithmetic, reflected, in-place, NotImplemented, unary, matmul."""

import torch

from curriculum import call, case, ramp


class Vec:
    def __init__(self, *items):
        self.items = items

    def __add__(self, other):
        if isinstance(other, Vec):
            return Vec(*(a + b for a, b in zip(self.items, other.items)))
        if isinstance(other, (int, torch.Tensor)):
            return Vec(*(a + other for a in self.items))
        return NotImplemented

    def __radd__(self, other):
        return Vec("radd", *self.items) if not isinstance(other, int) else self + other

    def __iadd__(self, other):
        self.items = tuple(a + other for a in self.items)
        return self

    def __mul__(self, n):
        return Vec(*(a * n for a in self.items))

    __rmul__ = __mul__

    def __matmul__(self, other):
        return sum(a * b for a, b in zip(self.items, other.items))

    def __neg__(self):
        return Vec(*(-a for a in self.items))

    def __pos__(self):
        return self

    def __invert__(self):
        return "inverted"

    def __abs__(self):
        return sum(abs(a) for a in self.items)

    def __pow__(self, n, mod=None):
        return "pow", n, mod

    def __divmod__(self, n):
        return "divmod", n

    def __round__(self, n=None):
        return "round", n

    def __lshift__(self, n):
        return ("lshift", n)

    def __rsub__(self, other):
        return ("rsub", other)

    def __float__(self):
        return 2.5

    def __int__(self):
        return 7


class Left:
    def __add__(self, other):
        return NotImplemented


class Right:
    def __radd__(self, other):
        return "right took it"


class SubVec(Vec):
    def __radd__(self, other):
        return "the subclass goes first"


@case()
def binary(x, y):
    v = Vec(x, y) + Vec(y, x)
    return v.items, (v * 2).items, (3 * v).items, (v + 1).items, (1 + v).items


@case(lambda: call(Vec(ramp(2), ramp(2))), lambda: call(Vec(ramp(3))))
def in_place_mutates(v):
    w = v
    w += 1
    return w is v, v.items


@case(call(ramp(2)))
def in_place_falls_back(x):
    v = Vec(x)
    w = v
    w *= 2
    return w is v, v.items, w.items


@case(call(ramp(2)))
def reflected(x):
    return Left() + Right(), (5.5 + Vec(1)).items, 10 - Vec(1), Vec(x) + SubVec(x), x + 1


@case(call(ramp(2)))
def both_refuse(x):
    y = x + 1
    return y, Left() + Left()


@case(call(ramp(2)))
def tensor_meets_a_user_object(x):
    class Scale:
        def __rmul__(self, other):
            return ("rmul", other + 1)

        def __mul__(self, other):
            return ("mul", other - 1)

    return Scale() * x


@case()
def matmul_and_unary(x, y):
    return Vec(x, y) @ Vec(y, x), (-Vec(x)).items, (+Vec(x)).items, ~Vec(1), abs(Vec(-1, -2))


@case(call(ramp(2)))
def the_rest(x):
    v = Vec(1)
    return v ** 2, pow(v, 2, 3), divmod(v, 4), round(v), round(v, 2), v << 1, float(v), int(v), x + int(v)


@case(call(ramp(2)))
def missing_operator(x):
    y = x + 1
    return y, Vec(1) / 2


@case(call(ramp(2)))
def wrong_unary(x):
    try:
        -Left()
    except TypeError as error:
        return str(error), x + 1


@case(call(ramp(2)))
def operator_raises(x):
    class Bad:
        def __add__(self, other):
            raise ValueError(f"cannot add {other}")

    y = x + 1
    return Bad() + 3


@case(call(ramp(2)))
def complex_and_index(x):
    class Number:
        def __index__(self):
            return 2

        def __complex__(self):
            return 1 + 2j

    n = Number()
    return [10, 20, 30][n], hex(n), range(5)[n], complex(n), "abc"[:n], x[..., :n], x.view(n)


@case(call(ramp(2)), call(ramp(3)))
def augmented_forms(x):
    class Log:
        def __init__(self):
            self.seen = []

        def __getattr__(self, name):
            raise AttributeError(name)

        def __isub__(self, o):
            self.seen.append(("-=", o))
            return self

        def __ior__(self, o):
            self.seen.append(("|=", o))
            return self

        def __imatmul__(self, o):
            self.seen.append("@=")
            return "replaced"

    log = keep = Log()
    log -= 1
    log |= 2
    log @= x
    return log, keep.seen, x * 2


@case(call(ramp(2)))
def fluent_expression_builder(x):
    class Expr:
        def __init__(self, text):
            self.text = text

        def __add__(self, o):
            return Expr(f"({self.text}+{getattr(o, 'text', o)})")

        def __radd__(self, o):
            return Expr(f"({o}+{self.text})")

        def __getitem__(self, k):
            return Expr(f"{self.text}[{k}]")

        def __call__(self, *a):
            return Expr(f"{self.text}({','.join(map(str, a))})")

    a = Expr("a")
    return (1 + a[0] + a(2, 3) + 4).text, x + 1


class Signed:
    def __init__(self, n):
        self.n = n

    def __pos__(self):
        return "plus", self.n


@case(lambda: call(ramp(2), Signed(1)), lambda: call(ramp(2), True), lambda: call(ramp(2), 2.5))
def plus_of_objects(x, value):
    return +Signed(3), +True, +value, +x + 1
