def program(mat, vec, ivec, n, flag, items, table, point):
    for i in range(n % 4):
        with contextlib.nullcontext(i) as c:
            try:
                m = (mat * vec)[:, [1, 0, 2, 3]]
                stator.graph_break()
                n + (repr(G_DEQUE))
            except* ValueError as e:
                print('values', e.exceptions)
            finally:
                print('after', i)
    return vec
