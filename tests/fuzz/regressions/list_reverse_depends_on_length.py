def program(mat, vec, ivec, n, flag, items, table, point):
    items.reverse()
