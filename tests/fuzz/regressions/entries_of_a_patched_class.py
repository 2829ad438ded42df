def program(mat, vec, ivec, n, flag, items, table, point):

    def g1(k):
        writers.patch_methods()
        writers.restore_methods()
        sent = (yield k)
    it = g1(1)
    l2 = [next(it)]
    torch._foreach_add_([vec, mat[0]], [F.hardtanh(vec, inplace=True), torch.from_numpy(G_ARRAY)])
    int('x' + '')
