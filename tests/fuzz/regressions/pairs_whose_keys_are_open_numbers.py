def program(mat, vec, ivec, n, flag, items, table, point):
    return dict.fromkeys(items), dict.fromkeys(iter([n])), frozenset([n]), frozenset().union([n]), {1: 2} | dict([(n, 1)]), {n} <= {1}, collections.OrderedDict([(n, 1)]), collections.defaultdict(int, {n: 1}), collections.defaultdict(int, [(n, 1)])
