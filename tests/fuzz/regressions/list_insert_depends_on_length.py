def program(mat, vec, ivec, n, flag, items, table, point):
    items.insert(0, len("xy"))
