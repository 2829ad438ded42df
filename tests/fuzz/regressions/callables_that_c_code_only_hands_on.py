def program(mat, vec, ivec, n, flag, items, table, point):
    return list(itertools.repeat(int, 2)), functools.reduce(lambda a, b: a, [], int), min(abs, len, key=id) in (abs, len), next(itertools.cycle([int, abs]))
