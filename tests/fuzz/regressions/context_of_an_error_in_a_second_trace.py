def program(mat, vec, ivec, n, flag, items, table, point):
    def inner():
        try:
            int('x' + 'a')
        except Exception:
            @functools.lru_cache
            def cached(q, /, r=n):
                stator.graph_break()
            cached(2)
            raise
    inner()
