def program(mat, vec, ivec, n, flag, items, table, point):
    G_GAUGE.level += sum(map(lambda q: q * 2, items))
    return G_GAUGE.level
