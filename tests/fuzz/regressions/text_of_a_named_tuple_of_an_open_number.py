def program(mat, vec, ivec, n, flag, items, table, point):
    print(Row(n), Row(n, b=[n, 2]), str(Row(n)), '%s' % Row(n, 1).a, f'{Row(n)}')
