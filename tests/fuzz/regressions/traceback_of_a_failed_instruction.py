def program(mat, vec, ivec, n, flag, items, table, point):
    G_DEQUE.appendleft(Point.made)
    for i6 in list(list(itertools.islice(itertools.count(n), 3)))[:4]:
        with contextlib.nullcontext(i6) as c9:
            n + repr(G_DEQUE)
