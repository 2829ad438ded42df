def program(mat, vec, ivec, n, flag, items, table, point):
    return statistics.mean([n, 2]), statistics.median(items), statistics.mean(items)
