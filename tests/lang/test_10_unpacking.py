"""Tuples, unpacking and starred targets."""

import torch

from curriculum import call, case, ramp


@case()
def swap(x, y):
    x, y = y, x
    (a, b), c = (x, y), 3
    return a - b + c


@case(([1, 2, 3, 4], ramp(2)), ((1, 2), ramp(2)), ("abc", ramp(2)))
def starred_target(items, x):
    first, *rest = items
    *start, last = items
    a, *middle, b = items
    return first, rest, start, last, middle, x + len(middle)


@case(([1],), ([1, 2, 3],), ([],), graphs=0)
def wrong_count(items):
    a, b = items
    return a, b


@case(([1],), ([1, 2, 3],), graphs=0)
def wrong_count_with_star(items):
    a, b, *c = items
    return a, b, c


@case((5,), (None,), graphs=0)
def not_iterable(value):
    a, b = value


@case()
def unpack_a_tensor(x):
    rows = x[:2]
    a, b = rows
    return a + b


@case()
def unpack_shape(x):
    n, m = x.shape
    *_, last = x.size()
    return x.view(m, n) * last


@case((([1, [2, 3]], ramp(2))), ([4, (5, 6)], ramp(2)))
def nested_targets(items, x):
    [a, [b, c]] = items
    (d, (e, f)) = items
    return a, b, c, d, e, f, x + b


@case(call(ramp(2)))
def targets_are_assigned_left_to_right(x):
    items = [0, 0, 0]
    i = 0
    i, items[i] = 2, 7
    items[0], i, items[i] = 1, 1, 9
    return items, i, x + i


@case(call((1, 2), ramp(2)))
def tuple_operations(t, x):
    return t + (3,), t * 2, t[::-1], t.index(2), t.count(1), len(t), t < (1, 3), hash(t) == hash((1, 2)), (x + 1, *t), (*t, *t)


@case(lambda: call(iter([1, 2, 3]), ramp(2)))
def unpack_an_iterator(it, x):
    a, *b = it
    return a, b, x + a


@case(lambda: call(iter(range(5)), ramp(2)))
def unpacking_stops_early(it, x):
    try:
        a, b = it
    except ValueError as error:
        return str(error), next(it), x + 1


@case(({"a": 1, "b": 2}, ramp(2)))
def star_in_displays(table, x):
    return [*table, *table.values()], (*"ab",), {*table}, {**table, "a": 5}, [*range(2), *x.shape], x + 1


@case(call([(1, ramp(2)), (2, ramp(2))]), call([(3, ramp(3))]))
def unpack_in_for(pairs):
    return [t * n for n, t in pairs], [rest for _, *rest in [(1, 2, 3), (4,)]]


@case()
def multiple_outputs(x):
    values, indices = x.max(dim=1)
    low, high = torch.aminmax(x)
    q, r = x.split([1, 2], dim=1)
    return values, indices, low, high, q @ r.sum(1, keepdim=True).t()


@case((1, (2, 3)), (4, ()), graphs=0)
def chained_assignment(a, rest):
    b = c = [a, *rest]
    c.append(0)
    d, e = f = (1, 2)
    return b is c, b, d, e, f
