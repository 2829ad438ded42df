def program(mat, vec, ivec, n, flag, items, table, point):
    w1 = G_LAYER(mat[-1]) * G_PARAM
    x = face_of(vec)
    x[0] = 5
    return ({1, 4}, w1)
