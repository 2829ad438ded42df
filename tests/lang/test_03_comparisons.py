"""Comparison operators, chains, identity and membership."""


from curriculum import call, case, ramp


@case()
def tensor_comparisons(x, y):
    return x < y, x <= y, x == y, x != y, x > y, x >= y, x == 0, 1 < x


@case((1, 2), (2, 2), (3, 2), graphs=0)
def int_comparisons(a, b):
    return [a < b, a <= b, a == b, a != b, a > b, a >= b]


@case((ramp(2), 1, 5), (ramp(2), 7, 5), (ramp(2), 3, 3))
def chain(x, low, high):
    if low < 4 <= high:
        return x + 1
    if low == high == 3:
        return x + 2
    return x - 1


@case(call(ramp(2)))
def chain_evaluates_the_middle_once(x):
    seen = []

    def middle():
        seen.append("m")
        return 5

    first = 1 < middle() < 9
    second = 9 < middle() < 1 / 0
    return first, second, seen, x + len(seen)


@case((ramp(2), None), (ramp(2), 3))
def is_none(x, bias):
    if bias is None:
        return x - 1
    if bias is not None:
        return x + bias


@case()
def identity_of_tensors(x, y):
    z = x
    return z is x, x is y, x is not y, (x + 1) is x, x + y


@case(lambda: call(*[ramp(2)] * 2), lambda: call(ramp(2), ramp(2)))
def identity_of_arguments(x, y):
    return x * 2 if x is y else x * 3


@case((ramp(2), 3), (ramp(2), "b"), (ramp(2), 9.0))
def membership(x, key):
    found = [key in [1, 2, 3], key in {"a": 1, "b": 2}, key in {9, 10}, key in (1, "b"), key not in [3]]
    return x + sum(found), found


@case(("ell", "hello"), ("", "x"), ("z", "hello"), graphs=0)
def substring(needle, hay):
    return needle in hay, needle not in hay, hay < needle, hay == needle


@case((ramp(2), [1, [2, 3]], [1, [2, 3]]), (ramp(2), [1], [1, 0]), (ramp(2), [2], [1, 0]))
def containers(x, a, b):
    return a == b, a < b, a >= b, a is b, tuple(a[:1]) == tuple(b[:1]), x + (a == b)


@case((float("nan"),), (1.0,), graphs=0)
def not_a_number(value):
    items = [value]
    return value == value, value != value, value in items, items == items, items == [value]


@case((1, "a"), (None, 2), graphs=0)
def ordering_of_unlike_types(a, b):
    return a < b


@case((1, 1.0, True), (0, 0.0, False), graphs=0)
def equal_across_types(a, b, c):
    return a == b == c, a is c, {a: "int", b: "float", c: "bool"}, hash(a) == hash(b)


@case((ramp(2), {"a": 1}, {"a": 1}), (ramp(2), {"a": 1}, {"b": 1}))
def dicts_and_sets(x, a, b):
    return a == b, set(a) <= set(b), a.keys() == b.keys(), a.keys() & b.keys(), x + (a == b)
