def program(mat, vec, ivec, n, flag, items, table, point):
    for i1 in [*[Point(3, 0), Late(1, 1)], point][:3]:

        @repeated(1)
        def f2(q, /, r=n, *, k=n):
            G_VARS['new'] = k
            print(sorted(vars(G_NS)))

            def f4(q, r=k, *rest, **more):
                a7 = numpy.frombuffer(G_SHORTS, dtype=numpy.float32)
            i8 = f4(n)
            return q * 2 + k
        i3 = f2(sum((i for i in items)))
    try:

        @functools.lru_cache
        @repeated(1)
        def f9(q, /, r=n, *, k=n):
            pass
        i10 = f9(i10)
    finally:

        @repeated(3)
        @functools.cache
        def f12(q, /, r=n, *, k=-3):
            return q * 2 + k - r
        i13 = f12(getattr(point, 'x'))
