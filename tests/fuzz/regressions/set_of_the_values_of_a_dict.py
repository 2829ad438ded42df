def program(mat, vec, ivec, n, flag, items, table, point):
    try:
        found = set(dict(table.items()).values()) | {n}
    except Exception as e:
        items.append(len(str(e)))
    return found, set(table.values()).intersection(items), frozenset({'a': n}.values()), list(table.values())
