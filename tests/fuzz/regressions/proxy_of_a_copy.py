def program(mat, vec, ivec, n, flag, items, table, point):
    import weakref
    try:
        n = weakref.proxy(copy.deepcopy(point)).x
    except Exception as e:
        items.append(len(str(e)))
    return vec + n
