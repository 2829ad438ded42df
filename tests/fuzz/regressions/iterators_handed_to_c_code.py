def program(mat, vec, ivec, n, flag, items, table, point):
    return sorted(zip(iter(items), iter(items))), sorted(itertools.chain(iter(items), iter(items))), sorted(itertools.islice(iter(items), 2)), collections.Counter(iter(items))
