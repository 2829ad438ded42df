def program(mat, vec, ivec, n, flag, items, table, point):
    return min(iter(items)), max(iter(items)), sorted(iter(items)), sum(iter(items)), tuple(reversed(items)), sorted(zip(items, items)), min(enumerate(items))
