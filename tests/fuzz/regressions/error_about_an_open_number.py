def program(mat, vec, ivec, n, flag, items, table, point):
    p5 = point
    match dict(zip('abc', items), a=1):
        case _:
            try:
                i3 = sum(collections.OrderedDict(vars(p5)).values())
            except Exception as e:
                items.append(len(str(e)))
