"""Tensor methods and torch functions, properties, scalars in and out."""

import torch

from curriculum import call, case, ramp


@case()
def pointwise(x):
    return x.sin(), torch.cos(x), x.exp().log(), x.relu(), x.sigmoid(), x.tanh(), x.abs().sqrt(), x.clamp(-0.5, 0.5), x.pow(3)


@case()
def reductions(x):
    return x.sum(), x.mean(0), x.max(), x.min(dim=1).values, x.argmax(-1), x.prod(), x.std(), x.norm(), x.any(), (x > 0).all(), x.logsumexp(1)


@case()
def keyword_forms(x):
    return x.sum(dim=1, keepdim=True), torch.sum(x, dim=(0, 1)), x.mean(dim=-1), torch.softmax(x, dim=-1), x.cumsum(dim=0)


@case(call(ramp(2, 3), ramp(3, 2)), call(ramp(4, 3), ramp(3, 4)))
def linear_algebra(a, b):
    return a @ b, torch.mm(a, b), a.matmul(b).trace(), torch.einsum("ij,jk->ik", a, b), torch.bmm(a[None], b[None]), a.T.mm(a), torch.outer(a[0], b[0])


@case()
def joining(x, y):
    return torch.cat([x, y]), torch.cat((x, y), dim=1), torch.stack([x, y]), torch.hstack((x, y)), torch.where(x > y, x, y)


@case(call(ramp(4, 6)), call(ramp(2, 6)))
def splitting(x):
    a, b = x.chunk(2, dim=1)
    parts = torch.split(x, 2, dim=1)
    return a - b, len(parts), parts[-1], x.unbind(0)[0], [p.shape for p in x.tensor_split(3, dim=1)]


@case()
def properties(x):
    return x.shape, x.dtype, x.device, x.ndim, x.numel(), x.is_contiguous(), x.T.stride(), x.requires_grad, x.layout, x.is_cuda, x.element_size(), x + 1


@case()
def sorting_and_gathering(x):
    values, order = x.sort(dim=1, descending=True)
    return values, order, x.topk(2, dim=1).indices, x.gather(1, order), x.argsort(), torch.flip(x, [0]), x.roll(1, 0)


@case()
def comparisons_and_masks(x):
    mask = x > 0
    return mask, ~mask, mask.sum(), x.masked_fill(mask, 0), torch.isnan(x), (x == x).all(), torch.isclose(x, x), mask & (x < 1), x.ne(0)


@case()
def named_results(x):
    result = x.max(dim=0)
    return result, result.values, result[1], torch.return_types.max is type(result), x.min(0).indices


@case(call(ramp(2), 2), call(ramp(2), 2.5), call(ramp(2), True))
def scalars(x, n):
    return torch.add(x, n), x.mul(n), torch.full_like(x, n), x.new_tensor([n]), torch.tensor(n), torch.pow(n, x.abs())


@case()
def methods_through_the_class(x):
    return torch.Tensor.add(x, 1), torch.Tensor.sum(x), getattr(x, "mul")(2), list(map(torch.Tensor.neg, [x]))[0]


@case(call(ramp(2, 3)), call(ramp(3, 3)))
def shape_error(x):
    y = x + 1
    return y @ x


@case(call(ramp(2, 3)), call(ramp(3, 3)))
def no_such_method(x):
    y = x + 1
    return y.no_such_method()


@case(call(ramp(2, 3)))
def wrong_arguments(x):
    y = x + 1
    return y.sum(dim="rows")


@case(call(torch.tensor([1 + 2j, 3j])), call(torch.tensor([1j])))
def complex_tensors(z):
    return z.real, z.imag, z.abs(), z.conj(), z * z, torch.view_as_real(z)
