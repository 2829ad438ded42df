"""In-place operations on inputs, intermediates, attributes, and buffers; out= arguments."""

import torch

from curriculum import call, case, ramp


class Holder:
    def __init__(self, t):
        self.t = t


buffer = torch.zeros(3)
steps = torch.tensor(0)


@case()
def argument(x):
    x.add_(1)
    x.mul_(2).sub_(3)
    return x.sum()


@case()
def nothing_is_returned(x):
    x.zero_()


@case()
def intermediate(x):
    y = x + 1
    y.relu_()
    y[0] = 5
    return y, x


@case(lambda: call(Holder(ramp(2))), lambda: call(Holder(ramp(3))))
def attribute(h):
    h.t += 1
    h.t.mul_(2)
    h.t[0] = 9
    return h.t.sum()


@case(call(ramp(3)), call(ramp(3, start=2.0)))
def global_buffer(x):
    buffer.mul_(0.5).add_(x)
    steps.add_(1)
    return buffer.clone(), steps + 0


@case(call(ramp(3), ramp(3, start=5.0)))
def copy_and_fill(x, y):
    x.copy_(y)
    y.fill_(7)
    return x - y


@case(call(ramp(4), torch.tensor([0, 2])), call(ramp(4), torch.tensor([1, 3])))
def indexed(x, index):
    x[index] = 0
    x.index_add_(0, index, torch.ones(2))
    x.scatter_(0, index, 5.0)
    x.index_fill_(0, index, -1)
    return x


@case(call(ramp(2, 3), ramp(2, 3)), call(ramp(4, 3), ramp(4, 3)))
def out_argument(x, out):
    result = torch.add(x, 1, out=out)
    return result is out, out * 2


@case(lambda: call([ramp(2), ramp(3)]), lambda: call([ramp(1)]))
def in_a_list(tensors):
    for i, t in enumerate(tensors):
        t.add_(i)
    tensors[0] = tensors[0] * 2
    return tensors


@case(lambda: call({"a": ramp(2)}), lambda: call({"a": ramp(3)}))
def in_a_dict(d):
    d["a"] *= 3
    d["b"] = d["a"]
    d["b"].sub_(1)
    return d["a"]


@case(call(ramp(2, 3)), call(ramp(3, 4)))
def mutation_then_shape(x):
    x.t_()
    return x.shape, x + 1


@case(call(ramp(2)))
def order_of_reads_and_writes(x):
    before = x + 0
    x.add_(1)
    middle = x + 0
    x.add_(1)
    return before, middle, x


@case(call(torch.ones(2, dtype=torch.int64)))
def type_error_in_place(x):
    y = x + 1
    y.add_(0.5)
    return y


@case(call(ramp(2, 3)))
def masked_and_clamped(x):
    x.clamp_(min=-0.5).masked_fill_(x > 1, 0).neg_()
    x[:, 0].exp_()
    return x
