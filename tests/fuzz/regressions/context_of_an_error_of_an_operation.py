def program(mat, vec, ivec, n, flag, items, table, point):
    try:
        match [Point(3, 0), Late(1, 1)][0]:
            case Point(x=m):
                mat.masked_fill_(torch.where(torch.ones(3, 4) > n, mat, 0) > n, 0)
    except Exception as e:
        raise KeyError('k')
    finally:
        stator.graph_break()
