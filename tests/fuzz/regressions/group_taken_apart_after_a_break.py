def program(mat, vec, ivec, n, flag, items, table, point):
    try:
        raise ExceptionGroup('many', [ValueError(1), KeyError('a'), Oops('x')])
    except* KeyError as e:
        stator.graph_break()
    except* Oops as e:
        stator.graph_break()
        raise
