def program(mat, vec, ivec, n, flag, items, table, point):
    for i1 in iter(count_up(0, 2)):
        with managed(list(map(lambda a, b: a - b, items, (2,))), checked(5)) as c2:
            torch.ones(4).sum().backward()
