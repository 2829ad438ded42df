def program(mat, vec, ivec, n, flag, items, table, point):
    for i2 in list(count_up(0, 4)):
        with managed(items, sum((i for i in items))) as c3:
            stator.graph_break()
