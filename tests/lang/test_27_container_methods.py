"""User containers: items, membership, length, iteration, missing keys, reversal."""

import collections
import collections.abc

from curriculum import call, case, ramp


class Grid:
    def __init__(self, width, cells):
        self.width = width
        self.cells = cells

    def __getitem__(self, key):
        if isinstance(key, tuple):
            row, column = key
            return self.cells[row * self.width + column]
        if isinstance(key, slice):
            return Grid(self.width, self.cells[key])
        return self.cells[key]

    def __setitem__(self, key, value):
        row, column = key
        self.cells[row * self.width + column] = value

    def __delitem__(self, key):
        del self.cells[key]

    def __len__(self):
        return len(self.cells)

    def __iter__(self):
        return iter(self.cells)

    def __contains__(self, value):
        return any(value is c for c in self.cells)

    def __reversed__(self):
        yield "reversed"
        yield from self.cells[::-1]


class Old:
    """Only the old sequence protocol."""

    def __init__(self, n):
        self.n = n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        return i * i

    def __len__(self):
        return self.n


class Params(collections.abc.Mapping):
    def __init__(self, **items):
        self._items = items

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)


class Stack(collections.abc.MutableSequence):
    def __init__(self):
        self.inner = []

    def __getitem__(self, i):
        return self.inner[i]

    def __setitem__(self, i, v):
        self.inner[i] = v

    def __delitem__(self, i):
        del self.inner[i]

    def __len__(self):
        return len(self.inner)

    def insert(self, i, v):
        self.inner.insert(i, v)


def grid():
    return call(Grid(2, [1, 2, 3, 4]), ramp(2))


@case(grid)
def get_set_delete(g, x):
    g[0, 1] = x
    g[1, 0] += 5
    del g[0]
    return g[-1], g[0] + 1, len(g), g[1:].cells


@case(grid)
def membership_and_iteration(g, x):
    return 3 in g, 9 in g, list(g), [c for c in g], list(reversed(g)), sum(g) + x, max(g), bool(g)


@case(lambda: call(Old(4), ramp(2)), lambda: call(Old(0), ramp(2)))
def old_sequence_protocol(old, x):
    return list(old), 4 in old, 5 in old, list(reversed(old)), [*old], tuple(enumerate(old)), x + len(old), bool(old)


@case(lambda: call(Params(w=ramp(2), b=ramp(2))), lambda: call(Params(w=ramp(3))))
def mapping_abc(p):
    out = {k: v * 2 for k, v in p.items()}
    return out, "w" in p, p.get("zz", 5), list(p), dict(p), len(p)


@case(lambda: call(Params(w=2, b=1), ramp(2)))
def mapping_as_keywords(p, x):
    def use(*, w, b=0):
        return x * w + b

    return use(**p), {**p, "c": 3}


@case(call(ramp(2)))
def mutable_sequence_abc(x):
    s = Stack()
    s.append(5)
    s.extend([1, 2])
    s.insert(0, "first")
    s.reverse()
    popped = s.pop()
    s += [9]
    return s.inner, popped, 2 in s, s.index(9), x + len(s)


@case(call(ramp(2)))
def missing(x):
    class Depth(dict):
        def __missing__(self, key):
            value = self[key] = Depth()
            return value

    d = Depth()
    d["a"]["b"]["c"] = x
    return d["a"]["b"]["c"] + 1, list(d), "z" in d, d


@case(grid)
def index_error_from_user_code(g, x):
    y = x + 1
    return y + g[9, 9]


@case(call(ramp(2)))
def no_item_access(x):
    class Empty:
        pass

    told = []
    for attempt in (lambda e: e[0], lambda e: e.__setitem__(0, 1), lambda e: len(e), lambda e: iter(e), lambda e: 1 in e):
        try:
            attempt(Empty())
        except (TypeError, AttributeError) as error:
            told.append(f"{type(error).__name__}: {error}")
    return told, x + 1


@case(call(ramp(2)))
def length_hints_and_bad_lengths(x):
    class Sized:
        def __init__(self, n):
            self.n = n

        def __len__(self):
            return self.n

    told = [len(Sized(3))]
    for bad in (-1, "a", 2.5):
        try:
            len(Sized(bad))
        except (TypeError, ValueError) as error:
            told.append(str(error))
    return told, x + 1


@case(call(ramp(2)))
def contains_result_becomes_bool(x):
    class Odd:
        def __contains__(self, item):
            return [item] if item else []

    return 1 in Odd(), 0 in Odd(), 0 not in Odd(), x + 1


@case(lambda: call(Grid(2, [ramp(2), ramp(2)])))
def unpack_a_user_container(g):
    a, b = g
    first, *rest = g
    return a + b, first is a, rest
