def program(mat, vec, ivec, n, flag, items, table, point):
    table.clear()
    table["k"] = n
