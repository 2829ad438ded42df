def program(mat, vec, ivec, n, flag, items, table, point):

    def f(v):
        stator.graph_break()
        raise ValueError(v)
    x = n + 1
    try:
        return f(x)
    except ValueError:
        return x * 2
