def program(mat, vec, ivec, n, flag, items, table, point):
    class L(list):
        pass
    class D(dict):
        pass
    print(L([n, 1]), D(a=n), [L([n])], (Row(n), 1), '%s' % [Row(n)], '{}'.format(Row(n)))
