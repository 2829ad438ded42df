def program(mat, vec, ivec, n, flag, items, table, point):
    d = {}
    d.update([(n, 1)])
    d.setdefault(n, 3)
    d |= [(n, 4)]
    return d, n in d, d.pop(n)
