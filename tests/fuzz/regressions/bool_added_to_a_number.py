def program(mat, vec, ivec, n, flag, items, table, point):
    a = mat.shape[0] > 3
    return ((bool(n) + True) in {1, 2}, (bool(n) + True + n) % 7, [1, 2, 3, 4][bool(n) + True], (True + a) % 3, a == 1, n == True)
