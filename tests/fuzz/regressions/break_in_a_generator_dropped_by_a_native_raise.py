def program(mat, vec, ivec, n, flag, items, table, point):
    items[1], G_LIST[0] = (sorted(items, reverse=True)[0], [x for pair in itertools.pairwise(items) for x in pair][0])
    try:
        for i10 in iter(count_up(0, 3)):
            raise ValueError('xy')
    finally:
        b13 = hasattr(p9, 'z')
