"""Slices and indices: read, write, delete; lists and tensors."""

import torch

from curriculum import call, case, ramp


class Recorder:
    def __init__(self):
        self.keys = []

    def __getitem__(self, key):
        self.keys.append(key)
        return key

    def __setitem__(self, key, value):
        self.keys.append(("set", key, value))

    def __delitem__(self, key):
        self.keys.append(("del", key))


@case((list(range(6)),), ([1],), ([],), graphs=0)
def read_list(items):
    return items[1:3], items[:-1], items[::2], items[::-1], items[-2:], items[10:], items[4:1:-1], items[:]


@case((list(range(6)), ramp(2)), ([1, 2, 3], ramp(2)))
def write_list(items, x):
    items[1:3] = "ab"
    items[:0] = [0, 0]
    items[len(items):] = (9,)
    items[::2] = [None] * len(items[::2])
    return x + len(items), items


@case((list(range(6)),), ([1, 2],), graphs=0)
def delete_list(items):
    del items[0]
    del items[1:3]
    del items[::2]
    return items


@case(([1, 2, 3, 4],), graphs=0)
def extended_slice_size_error(items):
    items[::2] = [1, 2, 3]


@case(call(ramp(4, 5)), call(ramp(5, 6)))
def read_tensor(x):
    return x[0], x[-1, 1:], x[:, ::2], x[..., 1], x[None, 1], x[1:3, :2], x[:, [0, 2]], x[x.shape[0] - 2]


@case(call(ramp(4, 5)), call(ramp(3, 4)))
def write_tensor(x):
    x[0] = 1
    x[1, 1:] = 7.5
    x[:, 0] = x[:, 1]
    x[..., -1] = torch.zeros(())
    x[[0, 2]] = 3
    return x


@case(call(ramp(4), torch.tensor([0, 3])), call(ramp(4), torch.tensor([1])))
def index_with_tensors(x, index):
    y = x[index]
    x[index] += 1
    return y, x[index.flip(0)], x.index_select(0, index), torch.where(x > 0, x, 0)


@case(call(ramp(4)), call(-ramp(4)))
def boolean_mask_write(x):
    x[x > 0] = 0
    return x, x.masked_fill(x < -0.5, 9.0)


@case(call(ramp(2)))
def slice_objects(x):
    s = slice(1, None, 2)
    t = slice(5)
    return s, s.start, s.stop, s.step, s.indices(6), list(range(6))[s], "abcdef"[t], s == slice(1, None, 2), x[slice(0, 1)]


@case(lambda: call(Recorder(), ramp(2)))
def every_key_form(r, x):
    r[1], r[1:2], r[::3], r[1, 2], r[1:2, ...], r[()], r["k"], r[None]
    r[0:1] = 5
    del r[3:]
    del r[1, "a"]
    return r.keys, x + len(r.keys)


@case((ramp(6), 1, 4), (ramp(6), 0, 2), (ramp(6), -3, None))
def bounds_from_arguments(x, low, high):
    return x[low:high] * 2


@case(call(ramp(3)), call(ramp(8)))
def index_out_of_range(x):
    y = x + 1
    return y[5]


@case(call(ramp(2)))
def list_index_type_error(x):
    items = [1, 2]
    y = x + 1
    return y, items["a"]


@case(call(ramp(3, 4)), call(ramp(5, 4)))
def views_share_storage(x):
    row = x[0]
    block = x[1:, ::2]
    block.zero_()
    row.add_(1)
    return row, block, x.t(), x.view(-1)


@case(([1, 2, 3, 4, 5], ramp(2)), ([1, 2], ramp(2)))
def windows(items, x):
    pairs = [items[i : i + 2] for i in range(len(items) - 1)]
    return [x + sum(p) for p in pairs]
