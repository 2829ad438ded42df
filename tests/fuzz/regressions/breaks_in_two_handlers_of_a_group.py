def program(mat, vec, ivec, n, flag, items, table, point):
    try:
        raise ExceptionGroup('many', [ValueError(1), ExceptionGroup('in', [KeyError('a'), Oops('x')])])
    except* KeyError as e:
        stator.graph_break()
        print(repr(e))
    except* Oops as e:
        stator.graph_break()
        raise
