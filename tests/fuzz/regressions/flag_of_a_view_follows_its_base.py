def program(mat, vec, ivec, n, flag, items, table, point):
    G_ONE.requires_grad_()
    print(G_TWO.requires_grad)
