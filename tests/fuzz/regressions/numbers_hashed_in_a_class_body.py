def program(mat, vec, ivec, n, flag, items, table, point):
    for i1 in (Ring(items, 2)[1], Colour(1 + n % 3)):
        s2 = set(itertools.chain(list(itertools.chain.from_iterable([items, (2,)])), tuple(Row(i1, 2))[:2]))
        try:
            stator.graph_break()

            class C8(dict):
                if frozenset(items) == s2:
                    pass
        finally:
            stator.graph_break()
