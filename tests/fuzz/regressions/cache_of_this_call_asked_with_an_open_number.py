def program(mat, vec, ivec, n, flag, items, table, point):
    i1 = n
    @functools.cache
    def f6(q, /, r=i1, *, k=i1):
        return q + k
    return f6(i1), f6(i1, k=n), f6(Row(n)[0])
