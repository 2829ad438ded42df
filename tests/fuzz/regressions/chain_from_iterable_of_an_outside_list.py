def program(mat, vec, ivec, n, flag, items, table, point):
    return list(itertools.chain.from_iterable([items, (1, 2)]))
