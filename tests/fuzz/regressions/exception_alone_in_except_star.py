def program(mat, vec, ivec, n, flag, items, table, point):
    try:
        raise Oops(1)
    except* Oops as e:
        raise
