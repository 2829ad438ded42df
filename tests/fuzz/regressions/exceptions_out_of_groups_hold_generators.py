def program(mat, vec, ivec, n, flag, items, table, point):
    for i2 in iter(count_up(0, 4)):
        try:
            raise ExceptionGroup('a', [ExceptionGroup('inner', [Oops(next(count_up(i2, 99)))]), ValueError('v')])
        except* ValueError as e:
            torch.ones(4).mean().backward(retain_graph=True)
        except* (KeyError, Oops) as e:
            pass
