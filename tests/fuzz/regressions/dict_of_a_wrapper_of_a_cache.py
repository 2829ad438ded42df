def program(mat, vec, ivec, n, flag, items, table, point):

    @tracing
    @functools.lru_cache
    def f1(q, /, r=n, *, k=n):
        pass
    i2 = f1(n)
    return (i2, f1, collections.defaultdict(int), 1000.0)
