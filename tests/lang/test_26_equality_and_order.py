"""User equality, ordering and hashing; total_ordering."""

import functools

import torch

from curriculum import call, case, ramp


@functools.total_ordering
class Version:
    def __init__(self, major, minor=0):
        self.major, self.minor = major, minor

    def __eq__(self, other):
        if not isinstance(other, Version):
            return NotImplemented
        return (self.major, self.minor) == (other.major, other.minor)

    def __lt__(self, other):
        return (self.major, self.minor) < (other.major, other.minor)

    def __hash__(self):
        return hash((self.major, self.minor))


class Elementwise:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other

    def __gt__(self, other):
        return self.value > other

    def __ne__(self, other):
        return "never equal"


class OnlyEq:
    def __eq__(self, other):
        return True


class Reflected:
    def __gt__(self, other):
        return ("gt", other)

    def __le__(self, other):
        return ("le", other)


@case(lambda: call(Version(1, 2), Version(1, 3), ramp(2)), lambda: call(Version(2), Version(1), ramp(2)))
def total_ordering(a, b, x):
    return [a < b, a <= b, a > b, a >= b, a == b, a != b], x + (a < b)


@case(call(ramp(2)))
def sorting_objects(x):
    versions = [Version(2), Version(1, 5), Version(1)]
    return [(v.major, v.minor) for v in sorted(versions)], max(versions).major + x, min(versions) == Version(1)


@case(call(ramp(2)))
def objects_as_keys(x):
    table = {Version(1): "one", Version(2): "two"}
    table[Version(1)] = "uno"
    return table[Version(1)], Version(3) in table, len({Version(1), Version(1, 0), Version(2)}), x + len(table)


@case(lambda: call(Elementwise(ramp(3))), lambda: call(Elementwise(5)))
def comparison_gives_any_value(e):
    return e == 0, e > 0, e != 0, torch.ones(2)


@case(call(ramp(2)))
def eq_without_hash_is_unhashable(x):
    y = x + 1
    return y, {OnlyEq()}


@case(call(ramp(2)))
def containment_uses_eq(x):
    return OnlyEq() in [1, 2], 3 in [OnlyEq()], [1, 2].index(OnlyEq()), [OnlyEq()] == [7], [1, 1].count(OnlyEq()), x + 1


@case(call(ramp(2)))
def reflected_comparison(x):
    return 5 < Reflected(), 5 >= Reflected(), Reflected() > 1, x + 1


@case(call(ramp(2)))
def no_ordering(x):
    y = x + 1
    return y, OnlyEq() < OnlyEq()


@case(call(ramp(2)))
def not_implemented_falls_to_identity(x):
    class Silent:
        def __eq__(self, other):
            return NotImplemented

        __hash__ = None

    a = Silent()
    return a == a, a == Silent(), a != a, a == 3, x + 1


@case(call(ramp(2)))
def identity_comes_before_equality(x):
    class Never:
        def __eq__(self, other):
            return False

    n = Never()
    return n in [n], [n] == [n], n == n, (n,) == (n,), {"k": n} == {"k": n}, x + 1


@case(call(ramp(2)))
def comparison_raises(x):
    class Bad:
        def __lt__(self, other):
            raise RuntimeError("no order here")

    y = x + 1
    return sorted([Bad(), Bad()]), y


@case(call(ramp(2)))
def hash_with_side_effects(x):
    seen = []

    class Noisy:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            seen.append(("hash", self.n))
            return 1

        def __eq__(self, other):
            seen.append(("eq", self.n, other.n))
            return self.n == other.n

    table = {Noisy(1): "a"}
    table[Noisy(2)] = "b"
    found = table.get(Noisy(2))
    return found, seen, x + len(seen)


@case(call(ramp(2)))
def key_functions(x):
    words = ["bb", "a", "ccc"]
    by_length = functools.cmp_to_key(lambda p, q: len(q) - len(p))
    return sorted(words, key=by_length), max(words, key=len), min(words, key=lambda w: (len(w), w)), x + 1
