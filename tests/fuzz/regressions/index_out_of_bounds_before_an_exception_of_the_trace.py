def program(mat, vec, ivec, n, flag, items, table, point):
    try:
        picked = mat[torch.arange(3)]
        items.append(n)
        Mood.CALM.doubled = n
    except LookupError as e:
        print(type(e).__name__, e)
    finally:
        items.append(-1)
    return items
