def program(mat, vec, ivec, n, flag, items, table, point):

    async def a3(k):
        G_BUFFER.add_(1)
    i4 = drive(a3(collections.defaultdict(int)['new'])) or 0
    assert n != int(G_BUFFER[2]), f'{2} {0}'
