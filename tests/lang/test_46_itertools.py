"""itertools, on numbers and on tensors."""

import itertools

import torch

from curriculum import call, case, ramp

# CPython tells where such an iterator stands by __reduce__, which itertools has no longer since 3.14.
UNREADABLE = None if "__reduce__" in vars(itertools.count) else "SB014: where the iterator stands cannot be read"


@case(call(ramp(2)))
def count_cycle_repeat(x):
    c = itertools.count(5, 2)
    return [next(c), next(c)], list(itertools.islice(itertools.cycle("ab"), 5)), list(itertools.repeat(x + 1, 2)), next(c)


@case(([1, 2], [3], ramp(2)), ([], [], ramp(2)))
def chain(a, b, x):
    return list(itertools.chain(a, b)), list(itertools.chain.from_iterable([a, b, a])), x + sum(itertools.chain(a, b))


@case(([1, 2, 3, 4, 5], ramp(2)), ([1], ramp(2)))
def islice(items, x):
    return list(itertools.islice(items, 2)), list(itertools.islice(items, 1, None, 2)), list(itertools.islice(iter(items), 3)), x + 1


@case(call([1, 2, 3], ramp(2)))
def combinatorics(items, x):
    return (list(itertools.product(items, "ab")), list(itertools.permutations(items, 2)), list(itertools.combinations(items, 2)),
            list(itertools.combinations_with_replacement("ab", 2)), x + len(list(itertools.product(items, repeat=2))))  # fmt: skip


@case(([1, 2, 3, 4], ramp(2)), ([], ramp(2)))
def accumulate(items, x):
    return list(itertools.accumulate(items)), list(itertools.accumulate(items, lambda a, b: a * b, initial=1)), list(itertools.accumulate([x, x, x]))


@case(call([1, 1, 2, 3, 3], ramp(2)))
def groupby(items, x):
    return [(k, list(g)) for k, g in itertools.groupby(items)], {k: len(list(g)) for k, g in itertools.groupby("aabbb")}, [
        (k, sum(g)) for k, g in itertools.groupby(items, key=lambda v: v % 2)], x + 1  # fmt: skip


@case(call([1, 2, 5, 1], ramp(2)))
def conditional(items, x):
    return (list(itertools.takewhile(lambda v: v < 3, items)), list(itertools.dropwhile(lambda v: v < 3, items)),
            list(itertools.filterfalse(lambda v: v % 2, items)), list(itertools.compress("abcd", [1, 0, 1, 1])), x + 1)  # fmt: skip


@case(([1, 2, 3], "ab", ramp(2)), ([], "x", ramp(2)))
def zip_longest_and_starmap(a, b, x):
    return list(itertools.zip_longest(a, b, fillvalue=0)), list(itertools.starmap(pow, [(2, 3), (3, 2)])), [
        t.sum() for t in itertools.starmap(torch.add, [(x, 1), (x, 2)])]  # fmt: skip


@case(call([1, 2, 3], ramp(2)))
def tee_and_pairwise(items, x):
    a, b = itertools.tee(items)
    next(b)
    return list(zip(a, b)), list(itertools.pairwise(items)), list(itertools.pairwise([x, x + 1]))[0][1]


@case(lambda: call(itertools.count(3), ramp(2)), breaks=UNREADABLE)
def count_argument_is_advanced(c, x):
    return x + next(c) + next(c)


@case(lambda: call(itertools.chain([1, 2], [3]), ramp(2)), breaks=UNREADABLE)
def chain_argument_is_advanced(c, x):
    return x + next(c)


@case(call(ramp(2)))
def callbacks_in_step(x):
    log = []
    it = itertools.takewhile(lambda v: log.append(v) or v < 2, itertools.count())
    first = next(it)
    log.append("between")
    return first, list(it), log, x + len(log)


@case(call(ramp(4, 2)), call(ramp(3, 2)))
def over_tensor_rows(x):
    return [a @ b for a, b in itertools.pairwise(x)], torch.stack(list(itertools.islice(x, 2))), list(itertools.accumulate(x))[-1]


@case(call(ramp(2)))
def errors(x):
    y = x + 1
    return y, list(itertools.islice([1], -1))


@case(call(ramp(2)), call(ramp(3)))
def a_zip_whose_first_iterables_are_over(x):
    zipped = itertools.zip_longest("a", [x, 2, 3], range(x.shape[0]))
    taken = [next(zipped), next(zipped)]
    mapped = list(map(str, itertools.islice(zipped, 1)))
    return taken, mapped, list(zipped), list(itertools.chain(zipped, [x + 1]))
