"""Iterators: user-made, sentinel form, partly consumed, errors inside."""


from curriculum import call, case, ramp


class CountDown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Repeatable:
    def __init__(self, items):
        self.items = items
        self.started = 0

    def __iter__(self):
        self.started += 1
        for item in self.items:
            yield item


@case(lambda: call(CountDown(3), ramp(2)), lambda: call(CountDown(0), ramp(2)))
def user_iterator(it, x):
    for n in it:
        x = x + n
    return x


@case(lambda: call(CountDown(5), ramp(2)))
def stop_early(it, x):
    for n in it:
        if n == 2:
            break
        x = x * 2
    return x, next(it), list(it)


@case(lambda: call(Repeatable([1, 2, 3]), ramp(2)))
def iterable_started_twice(r, x):
    pairs = [(a, b) for a in r for b in r if a < b]
    return pairs, x + r.started, sum(r), max(r)


@case(call(ramp(2)))
def next_and_default(x):
    it = iter([x])
    first = next(it)
    return first + 1, next(it, "done"), next(iter([]), None)


@case(call(ramp(2)))
def next_raises(x):
    y = x + 1
    it = iter([y])
    next(it)
    return next(it)


@case(call(ramp(2)))
def callable_and_sentinel(x):
    state = [0]

    def tick():
        state[0] += 1
        return state[0]

    return list(iter(tick, 4)), state, x + state[0]


@case(lambda: call(iter([1, 2, 3]), ramp(2)), lambda: call(iter((5,)), ramp(2)))
def iterator_argument_is_advanced(it, x):
    return x + next(it)


@case(lambda: call(iter([1, 2, 3, 4]), ramp(2)))
def one_iterator_in_pairs(it, x):
    return [a * b for a, b in zip(it, it)], x + 1


@case(([1, 2, 3],), graphs=0)
def iterator_is_returned(items):
    it = iter(items)
    next(it)
    return it


@case(call(ramp(2)))
def builtin_iterators_in_progress(x):
    e = enumerate("abc", 5)
    z = zip([1, 2, 3], "xyz")
    m = map(lambda v: v + 1, [1, 2, 3])
    f = filter(None, [0, 1, 2])
    r = reversed([1, 2, 3])
    started = [next(e), next(z), next(m), next(f), next(r)]
    return started, list(e), list(z), list(m), list(f), list(r), x + len(started)


@case(call(ramp(2)))
def iterating_dict_views(x):
    table = {"a": x, "b": x + 1}
    keys, values = iter(table), iter(table.values())
    return next(keys), next(values), list(keys), next(values) * 2


@case(call(ramp(2)))
def error_in_next(x):
    class Bad:
        def __iter__(self):
            return self

        def __next__(self):
            raise ValueError("no more numbers")

    y = x + 1
    for _ in Bad():
        pass
    return y


@case(call(ramp(2)))
def iter_must_return_an_iterator(x):
    class Bad:
        def __iter__(self):
            return [1]

    y = x + 1
    return y, list(Bad())


@case(call(ramp(2)))
def iterator_over_a_changing_list(x):
    items = [1, 2]
    it = iter(items)
    got = [next(it)]
    items.append(3)
    got.extend(it)
    items.append(4)
    return got, list(it), x + len(items)


@case(lambda: call(range(2, 20, 3), ramp(2)), lambda: call(range(5, 0, -2), ramp(2)))
def ranges(r, x):
    return r.start, r.stop, r.step, len(r), r[-1], 5 in r, list(r), list(reversed(r)), r[1:], r == range(2, 19, 3), x + r.index(5)
