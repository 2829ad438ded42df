def program(mat, vec, ivec, n, flag, items, table, point):
    try:
        raise ExceptionGroup('{0[0]} {1.x}'.format(items, point), [ExceptionGroup('inner', [Oops(int(G_LAYER(vec).sum()))]), ValueError('v')])
    except* ValueError as e:
        pass
    except* (KeyError, Oops) as e:
        print('group', repr(e))
