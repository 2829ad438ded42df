def program(mat, vec, ivec, n, flag, items, table, point):
    class Derived(Point):
        pass

    made = Derived(n, 1)
    made.tags.append(repr(made))
    stator.graph_break()
