def program(mat, vec, ivec, n, flag, items, table, point):
    def g():
        yield items
        yield [n]
    return list(itertools.chain.from_iterable(g())), sum(itertools.chain.from_iterable(map(lambda v: [v, n], items)))
