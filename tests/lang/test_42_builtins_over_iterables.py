"""Builtins that consume iterables, and those that call back."""

import torch

from curriculum import call, case, ramp


@case(([3, 1, 2], ramp(2)), ([5], ramp(2)))
def len_sum_min_max(items, x):
    return len(items), sum(items), sum(items, 10), min(items), max(items), min(4, 2, 9), max("b", "a"), x + sum(items)


@case(call(ramp(2)), call(ramp(3)))
def sum_of_tensors(x):
    return sum([x, x + 1, x * 2]), sum((x, x), torch.ones(())), sum([[1], [2]], [])


@case(([],), ([1],), graphs=0)
def min_of_nothing(items):
    return min(items, default="none"), max(items)


@case((["bb", "a", "ccc"], ramp(2)), ([], ramp(2)))
def sorted_forms(words, x):
    return sorted(words), sorted(words, key=len), sorted(words, key=len, reverse=True), sorted("hello"), sorted({3, 1}), x + 1


@case(call(ramp(2)))
def sort_is_stable(x):
    rows = [("a", 2), ("b", 1), ("c", 2), ("d", 1)]
    return sorted(rows, key=lambda r: r[1]), sorted(rows, key=lambda r: r[1], reverse=True), x + 1


@case(call(ramp(2)))
def sort_tensors_by_a_python_key(x):
    parts = [("b", x * 2), ("a", x * 3)]
    return [t for _, t in sorted(parts, key=lambda p: p[0])], max(parts, key=lambda p: p[0])[1]


@case(([1, 2, 3], "abc", ramp(2)), ([1], "xyz", ramp(2)))
def zip_forms(a, b, x):
    return list(zip(a, b)), list(zip()), list(zip(a)), dict(zip(b, a)), list(zip(*[(1, 2), (3, 4)])), x + len(list(zip(a, b)))


@case(([1, 2], "abc"), ([1, 2, 3, 4], "abc"), ([1], "a"), graphs=0)
def zip_strict(a, b):
    return list(zip(a, b, strict=True))


@case((["a", "b"], ramp(2)), ([], ramp(2)))
def enumerate_forms(items, x):
    for i, item in enumerate(items, start=1):
        x = x + i
    return list(enumerate(items)), list(enumerate(items, 5)), x


@case(([1, 2, 3], ramp(2)), ([], ramp(2)))
def map_and_filter(items, x):
    return (list(map(lambda v: v + 1, items)), list(map(pow, items, items)), list(filter(lambda v: v % 2, items)),
            list(filter(None, [0, 1, "", "a"])), [t.sum() for t in map(torch.neg, [x, x])])  # fmt: skip


@case(call(ramp(2)))
def map_calls_back_in_step(x):
    log = []
    m = map(lambda v: log.append(v) or v * 2, [1, 2, 3])
    first = next(m)
    log.append("between")
    return first, list(m), log, x + first


@case(([0, 1],), ([1, 1],), ([],), graphs=0)
def any_and_all(items):
    seen = []

    def check(v):
        seen.append(v)
        return v

    return any(items), all(items), any(check(v) for v in items), all(check(v) for v in items), seen


@case(([1, 2, 3], ramp(2)), ((), ramp(2)))
def reversed_forms(items, x):
    return list(reversed(items)), list(reversed(range(3))), list(reversed({"a": 1, "b": 2})), "".join(reversed("abc")), x + 1


@case(call(ramp(2)))
def error_in_a_callback(x):
    def key(v):
        if v == 2:
            raise ValueError("key failed")
        return v

    y = x + 1
    return sorted([1, 2, 3], key=key), y


@case(call(ramp(4, 2)), call(ramp(3, 2)))
def builtins_on_a_tensor(x):
    return len(x), [r.sum() for r in reversed(x)], list(zip(x, range(2)))[1][0], [i for i, _ in enumerate(x)], sum(x), abs(x)
