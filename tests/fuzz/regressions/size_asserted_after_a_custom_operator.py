def program(mat, vec, ivec, n, flag, items, table, point):
    mat.copy_(writers.checked(vec))
    m5 = mat.masked_select(mat == torch.ones(3, 4)).view(-1, 4).relu()
