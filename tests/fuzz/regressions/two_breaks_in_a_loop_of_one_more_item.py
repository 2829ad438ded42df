def program(mat, vec, ivec, n, flag, items, table, point):
    for i in range(n % 4):
        stator.graph_break()
        stator.graph_break()
        bump_global(n)
        mat.mul_(2)
