def program(mat, vec, ivec, n, flag, items, table, point):
    for x in table:
        stator.graph_break()
        table[x] += n
    del table[x]
    return vec + n
