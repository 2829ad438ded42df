"""Closures: cells, nonlocal, late binding, del, sharing between functions."""

import types

import torch

import stator
from curriculum import call, case, ramp


def make_counter(start):
    count = start

    def increment(by=1):
        nonlocal count
        count += by
        return count

    def read():
        return count

    return increment, read


increment, read = make_counter(10)


def make_scaler(weight):
    def apply(x):
        return x * weight

    return apply


scaler = make_scaler(torch.tensor([2.0, 3.0]))


@case()
def read_enclosing(x):
    n = x.dim()

    def inner(y):
        return y + n

    return inner(x)


@case()
def nonlocal_write(x):
    total = 0

    def add(v):
        nonlocal total, x
        total += v
        x = x + v

    for i in range(4):
        add(i)
    return x, total


@case()
def global_closure_is_mutated(x):
    return x + increment() + increment(5) + read()


@case(call(ramp(2)))
def tensor_in_a_cell(x):
    return scaler(x)


@case()
def closure_is_returned(x):
    def later(y=2):
        return x * y

    return later, later()


@case()
def two_closures_share_a_cell(x):
    def make():
        state = [x]

        def push(v):
            nonlocal state
            state = state + [v]

        def get():
            return state

        return push, get

    push, get = make()
    push(x + 1)
    push(3)
    return get()


@case(call(ramp(2)))
def late_binding(x):
    functions = []
    for i in range(3):
        functions.append(lambda: x + i)
    i = 10
    return [f() for f in functions]


@case(call(ramp(2)))
def three_levels(x):
    a = 1

    def one():
        b = 2

        def two():
            nonlocal a, b
            a, b = a + b, a

            def three():
                return x + a * 10 + b

            return three

        return two()()

    return one(), a


@case(call(ramp(2)))
def unbound_free_variable(x):
    def use():
        return later

    y = x + 1
    use()
    later = 1
    return y


@case(call(ramp(2)))
def unbound_local_variable(x):
    y = x + 1
    if y.dim() == 9:
        value = 1
    return value


@case(call(ramp(2)))
def deleted_cell(x):
    value = 3

    def use():
        return value

    first = use()
    del value
    try:
        use()
    except NameError as error:
        return first, str(error), x + first


@case(call(ramp(2)))
def cell_objects(x):
    n = 5

    def inner():
        return n + x.dim()

    return inner.__closure__[0].cell_contents, inner.__code__.co_freevars, len(inner.__closure__), inner() + x


@case(call(ramp(2)))
def recursion_through_a_cell(x):
    def power(n):
        return x if n == 1 else power(n - 1) * x

    return power(4)


@case(call(ramp(2), 1), call(ramp(2), 2))
def argument_is_a_cell(x, n):
    def shift():
        nonlocal n
        n += 1
        return x + n

    return shift(), shift(), n


@case(call(ramp(2)))
def class_body_closes_over_a_function(x):
    factor = 3

    class Local:
        triple = factor * 3

        def apply(self):
            return x * factor + self.triple

    factor = 4
    return Local().apply(), Local.triple


@case(call(ramp(2)))
def free_variable_that_was_deleted(x):
    factor = 3

    def read():
        return x * factor

    del factor
    try:
        return read()
    except NameError as error:
        return x + 1, error.name, str(error)


def test_cells_compared():
    def compared(v, w):
        made = types.CellType(2)
        pairs = [(v, w), (v, types.CellType()), (v, v)] + ([(w, made)] if type(w.cell_contents) is int else [])
        found = [(a == b, a != b, a < b, a >= b, (a,) < (b,), [a] == [b], a in [b], {1: a} == {1: b}) for a, b in pairs]
        return found, sorted([w, v])[0] is v, max(v, w) is w

    compiled = stator.compile(compared, backend="eager", fullgraph=True)
    for first, second in ((1, 2), (2, 2), ("b", "a"), (float("nan"), 3.0)):
        v, w = types.CellType(first), types.CellType(second)
        assert compiled(v, w) == compared(v, w)
        assert compiled(w, w) == compared(w, w)


def test_cells_of_tensors_compared():
    def compared(v, w):
        return v == w, v.cell_contents + 1

    compiled = stator.compile(compared, backend="eager", fullgraph=True)
    v, w = types.CellType(ramp(2)), types.CellType(ramp(2) * 2)
    for a, b in zip(compiled(v, w), compared(v, w), strict=True):
        assert torch.equal(a, b)
