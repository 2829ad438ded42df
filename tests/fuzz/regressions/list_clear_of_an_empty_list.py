def program(mat, vec, ivec, n, flag, items, table, point):
    held = items[:n % 5]
    held.clear()
    items.clear()
    items.append(n)
