def program(mat, vec, ivec, n, flag, items, table, point):
    G_ONE.data = vec.detach().clone()
    print(G_TWO)
