def program(mat, vec, ivec, n, flag, items, table, point):
    for i3 in G_LAYER(mat).unbind():
        writers.bump(i3, by=math.hypot(3, n))

        def g4(k):
            point.x = 5
            sent = (yield k)
        it = g4(1)
        l10 = [next(it)]
