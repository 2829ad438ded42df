"""functools: partial, reduce, caches, singledispatch, partialmethod, cached_property."""

import functools
import weakref

import torch

import stator
from curriculum import call, case, ramp


def scale(x, factor, shift=0):
    return x * factor + shift


double = functools.partial(scale, factor=2)
computed = []


@functools.lru_cache(maxsize=None)
def slow_square(n):
    return n * n


@functools.cache
def table(n):
    return tuple(range(n))


@functools.singledispatch
def describe(value):
    return "object"


@describe.register
def _(value: int):
    return f"int {value}"


@describe.register(list)
def _list(value):
    return f"list of {len(value)}"


@describe.register(torch.Tensor)
def _tensor(value):
    return value * 2


class Cell:
    def __init__(self):
        self.log = []

    def set(self, name, value=True):
        self.log.append((name, value))
        return self

    on = functools.partialmethod(set, "power")
    off = functools.partialmethod(set, "power", value=False)

    @functools.cached_property
    def costly(self):
        self.log.append("computed")
        return len(self.log)

    @functools.singledispatchmethod
    def take(self, value):
        return "other"

    @take.register
    def _(self, value: str):
        return f"str {value}"


@case()
def partial_objects(x):
    add = functools.partial(torch.add, x)
    return double(x), double(x, shift=1), double(x, factor=5), add(1), functools.partial(double, shift=3)(x)


@case(call(ramp(2)))
def partial_attributes(x):
    p = functools.partial(scale, 1, shift=2)
    nested = functools.partial(p, factor=3)
    return p.func is scale, p.args, p.keywords, nested.keywords, nested(), x + nested()


@case(lambda: call(functools.partial(scale, factor=3), ramp(2)), lambda: call(functools.partial(scale, factor=4), ramp(2)))
def partial_argument(f, x):
    return f(x), f(x, shift=1)


@case(([1, 2, 3], ramp(2)), ([], ramp(2)))
def reduce(items, x):
    return (functools.reduce(lambda a, b: a * b, items, 1), functools.reduce(torch.add, [x, x, x]),
            functools.reduce(lambda a, b: a + [b], items, []))  # fmt: skip


@case(call(ramp(2)))
def reduce_of_nothing(x):
    y = x + 1
    return y, functools.reduce(lambda a, b: a, [])


@case((ramp(2), 4), (ramp(2), 5))
def lru_cache(x, n):
    return x + slow_square(n) + slow_square(n), table(n)


@functools.cache
def name_of(reference):
    return reference().__name__


@case(call(ramp(2)))
def cached_by_weak_reference(x):
    names = [name_of(weakref.ref(cls)) for cls in (int, functools.partial, int)]
    return x + len(names), names


@case(call(ramp(2)))
def cache_made_inside(x):
    calls = []

    @functools.lru_cache(maxsize=2)
    def f(n):
        calls.append(n)
        return n + 1

    values = [f(1), f(2), f(1), f(3), f(2)]
    return values, calls, f.cache_info().hits, f.__wrapped__(9), x + f(1)


@case(lambda: call(ramp(2), 3), lambda: call(ramp(2), [1, 2]), lambda: call(ramp(2), "s"))
def singledispatch(x, value):
    return describe(value), describe(x), describe(True), x + 1


@case(call(ramp(2)))
def singledispatch_made_inside(x):
    @functools.singledispatch
    def f(v):
        return "default"

    @f.register(int)
    def _(v):
        return v + 1

    f.register(str, lambda v: v + "!")
    return f(1), f("a"), f(2.5), f(True), f.dispatch(bool)(4), x + f(1)


@case(lambda: call(Cell(), ramp(2)))
def partialmethod(cell, x):
    cell.on().off().on(value=3)
    return cell.log, x + len(cell.log)


@case(lambda: call(Cell(), ramp(2)))
def cached_property(cell, x):
    return cell.costly + cell.costly + x, cell.log


@case(lambda: call(Cell(), ramp(2)))
def singledispatchmethod(cell, x):
    return cell.take("a"), cell.take(3), x + 1


@case(call(ramp(2)))
def wraps(x):
    def original(v: int) -> int:
        """Doc."""
        return v

    original.mark = 1

    @functools.wraps(original)
    def wrapper(*a):
        return original(*a) + 1

    return wrapper(x), wrapper.__name__, wrapper.__doc__, wrapper.mark, wrapper.__wrapped__ is original, wrapper.__annotations__


@case(call(ramp(2)))
def cmp_to_key(x):
    order = functools.cmp_to_key(lambda a, b: (a > b) - (a < b))
    return sorted([3, 1, 2], key=order), order(1) < order(2), x + 1


def test_a_partial_of_a_partial_is_one():
    def nested(inner):
        outer, own = functools.partial(inner, 2), functools.partial(functools.partial(min, 3), 4)
        return outer.func, outer.args, own.func, own.args, outer(0), own(9)

    def marked(inner):
        inner.tag = 3
        return inner.tag, functools.partial(inner, 2).args

    for program in (nested, marked):
        mine, theirs = functools.partial(max, 1), functools.partial(max, 1)
        assert stator.compile(program, backend="eager")(mine) == program(theirs)
        assert vars(mine) == vars(theirs)
