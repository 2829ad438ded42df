def program(mat, vec, ivec, n, flag, items, table, point):
    for i1 in iter(chain(list((4, 1))[:2], count_up(1, 3))):
        x = []
        x.append(x)
        print(x)
        collections.defaultdict(int).setdefault('w', 2 * n % 17)
        if flag:
            break
    t4 = (*(2,)[::-1][:1], *list(itertools.accumulate(items))[:1], 3)
