"""Views, storage sharing, returned inputs, outputs that alias each other."""

import torch

from curriculum import call, case, ramp


def overlapping():
    base = ramp(6)
    return call(base[:4], base[2:])


@case(graphs=0)
def input_is_returned(x):
    return x


@case()
def input_is_returned_twice(x):
    return x, [x], x + 1


@case(call(ramp(2, 6)), call(ramp(4, 3)))
def shape_views(x):
    return x.view(-1), x.reshape(3, -1), x.t(), x.unsqueeze(0), x.flatten(), x.transpose(0, 1), x.permute(1, 0), x.expand(2, *x.shape)


@case(call(ramp(2, 6)), call(ramp(4, 3)))
def view_of_an_intermediate(x):
    y = x + 1
    return y, y.view(-1), y[0], y.t()


@case(call(ramp(2, 6)))
def writing_through_a_view(x):
    v = x.view(-1)
    v[0] = 100
    x[1].mul_(2)
    return v, x


@case(overlapping)
def arguments_that_share_storage(a, b):
    a.add_(1)
    return a + 1, b * 2


@case(lambda: call(*[ramp(3)] * 2), lambda: call(ramp(3), ramp(3)))
def one_tensor_passed_twice(a, b):
    a.add_(1)
    return a * b, a is b


@case()
def outputs_share_one_tensor(x):
    y = x * 2
    return {"a": y, "b": [y, y], "c": (y,)}


@case()
def no_operation_makes_a_view(x):
    return x.contiguous() is x, x.to(x.dtype) is x, x.view(x.shape) is x, x.detach(), x.clone(), x.float()


@case(call(ramp(2, 3).t()), call(ramp(4, 3).t()), call(ramp(3, 2)))
def strides_are_kept(x):
    return x + 1, x.contiguous(), x.clone(), x * 2, x.is_contiguous()


@case(call(ramp(4)[::2]), call(ramp(8)[1::2]))
def strided_input(x):
    x.mul_(2)
    return x, x + 1


@case(call(ramp(3, 4)))
def diagonal_and_select(x):
    d = x.diagonal()
    d.zero_()
    return d, x.select(0, 1), x.narrow(1, 1, 2), x.unfold(1, 2, 1)


@case(call(ramp(2, 1)))
def expanded_and_repeated(x):
    return x.expand(2, 3), x.repeat(1, 2), x.expand_as(torch.zeros(2, 2)), x.broadcast_to(3, 2, 1), x + 1


@case(call(ramp(2)))
def detached_shares_storage(x):
    d = x.detach()
    d.add_(1)
    return d, x, d.requires_grad


@case(call(ramp(4)))
def chunks_written_separately(x):
    a, b = x.chunk(2)
    a.add_(1)
    b.mul_(0)
    return a, b, x
