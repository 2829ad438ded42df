def program(mat, vec, ivec, n, flag, items, table, point):

    class C4(Late):
        pass
    p5 = C4(n, 1)
    h10 = 2

    def f9(q, r=n, *rest, **more):
        h12 = h10

        def f11(q, r=q, *rest, **more):
            nonlocal h12
            h12 += q

            def g14(k):
                try:
                    got = (yield k)
                    yield got
                finally:
                    print('closing', h12)

            def g13(k):
                value = (yield from g14(k))
            it = g13(2)
            l15 = [next(it), it.send(q), next(it, 9)]
            return h12 + r
        i17 = f11(mat.shape[0])
        stator.graph_break()
        s21 = {1, 4} - {h10} - {f11(n)}
    i23 = f9(Point.made)
