def program(mat, vec, ivec, n, flag, items, table, point):
    l4 = list(itertools.chain(G_LIST, (4, 1)))
    stator.graph_break()
    for i12 in count_up(1, 3):
        s13 = {1, 4}
    return set(l4) <= s13
