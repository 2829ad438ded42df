def program(mat, vec, ivec, n, flag, items, table, point):
    v3 = torch.ones(3, 4).masked_select(mat == torch.ones(3, 4)).view(-1, 4).max(0).values
    v9 = torch.ops.aten.mul_.Scalar(torch.ones(3, 4), 2).max(0).values
    writers.whole(v9, vec)
