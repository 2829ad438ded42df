def program(mat, vec, ivec, n, flag, items, table, point):
    Point.made = n

    class Derived(Late):
        pass

    return Derived(2, 1)
