def program(mat, vec, ivec, n, flag, items, table, point):
    return list(itertools.zip_longest([1], [], fillvalue=int)), list(zip([int], [abs])), list(iter(items.pop, 4)), list(enumerate([int], 1)), list(itertools.chain([int], (abs,))), list(itertools.islice([int, abs], 1)), list(itertools.product([int])), list(itertools.pairwise([int, abs]))
