def program(mat, vec, ivec, n, flag, items, table, point):
    for i4 in iter(count_up(0, 1)):
        writers.noisy(vec)
        mat.select(0, 0)[ivec - torch.tensor([3, 1, 2, 0])]
