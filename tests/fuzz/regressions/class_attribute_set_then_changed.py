def program(mat, vec, ivec, n, flag, items, table, point):
    Point.tags = [n]
    point.tags.append(2)
    return point.tags
