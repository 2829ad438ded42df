"""Sets and frozensets."""

import torch

from curriculum import call, case, ramp


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __eq__(self, other):
        return isinstance(other, Point) and (self.x, self.y) == (other.x, other.y)

    def __hash__(self):
        return hash((self.x, self.y))


@case(({1, 2, 3}, {2, 3, 4}), ({1}, set()), graphs=0)
def algebra(a, b):
    return a | b, a & b, a - b, a ^ b, a <= b, a < a, a >= b, a.isdisjoint(b), a.issubset(b), a.union([9], (8,))


@case(({1, 2}, ramp(2)), ({5}, ramp(2)))
def every_mutating_method(s, x):
    s.add(7)
    s.update([8, 9])
    s.discard(100)
    s.remove(8)
    s |= {20}
    s -= {9}
    s ^= {1, 30}
    s &= {7, 20, 30, 1}
    return x + len(s), sorted(s)


@case(({1}, ramp(2)), ({2}, ramp(2)))
def remove_missing(s, x):
    y = x + 1
    s.remove(1)
    return y


@case(call(ramp(2)))
def literals_and_comprehensions(x):
    s = {1, 2, *range(5)}
    t = {n % 3 for n in s}
    return s, t, frozenset(t), len({True, 1, 1.0}), x + len(t)


@case((ramp(2), [1, 1, 2]), (ramp(2), "hello"))
def deduplicate(x, items):
    seen = set()
    unique = [i for i in items if not (i in seen or seen.add(i))]
    return unique, x * len(seen)


@case(call(ramp(2)))
def frozensets_as_keys(x):
    table = {frozenset({1, 2}): "a", frozenset(): "b"}
    return table[frozenset([2, 1])], frozenset([1]) == {1}, hash(frozenset({1})) == hash(frozenset([1])), x + 1


@case(lambda: call({Point(1, 2)}, ramp(2)), lambda: call({Point(0, 0), Point(1, 1)}, ramp(2)))
def elements_with_their_own_equality(points, x):
    points.add(Point(1, 2))
    points.add(Point(3, 4))
    return len(points), Point(3, 4) in points, Point(9, 9) in points, x + len(points)


@case(([1],), ({2},), graphs=0)
def unhashable_element(value):
    return {1, value}


@case((frozenset({1, 2}),), (frozenset(),), graphs=0)
def frozen_cannot_change(s):
    s |= {3}
    try:
        s.add(4)
    except AttributeError as error:
        return s, str(error)


@case(({3, 1, 2}, ramp(2)), ({10}, ramp(2)))
def pop_and_clear(s, x):
    total = 0
    while s:
        total += s.pop()
    s.add("end")
    s.clear()
    return x + total, s


@case(call(ramp(2)))
def set_of_types_and_functions(x):
    kinds = {int, float, torch.Tensor}
    return type(x) in kinds, str in kinds, {torch.relu, torch.tanh} == {torch.tanh, torch.relu}, x * 2


@case(lambda: call([ramp(1), ramp(2)]), lambda: call([ramp(3)]))
def set_of_tensors(tensors):
    seen = set(tensors)
    seen.add(tensors[0])
    return len(seen), tensors[0] in seen, tensors[-1] * 2
