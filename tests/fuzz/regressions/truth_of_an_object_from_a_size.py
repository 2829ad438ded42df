def program(mat, vec, ivec, n, flag, items, table, point):
    if bool(point):
        return n
    return -n
