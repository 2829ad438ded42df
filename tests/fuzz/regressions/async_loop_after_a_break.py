def program(mat, vec, ivec, n, flag, items, table, point):
    async def a(k):
        for i in range(2):
            stator.graph_break()
            vec.neg_()
        async for t in ticks(2):
            stator.graph_break()
            k += t + await later(k)
        return k
    return drive(a(n)), vec
