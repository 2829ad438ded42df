"""Shapes as Python values: torch.Size arithmetic, branches, loops and messages from sizes."""

import math

import torch

from curriculum import call, case, ramp


@case()
def size_is_a_tuple(x):
    s = x.shape
    return s, len(s), s[0], s[-1], s[1:], s + (1,), (5,) + tuple(s), s * 2, s == (2, 3), isinstance(s, tuple), type(s[1:]), s.numel(), x + 1


@case()
def arithmetic(x):
    n, m = x.shape
    return x * (n * m) + n // 2 - m % 2 + n / m + n ** 2 - (-m)


@case()
def size_method(x):
    return x.size(), x.size(0), x.size(-1), x.size(dim=1), x.dim(), x.nelement(), x + x.size(1)


@case()
def branch_on_shape(x):
    if x.shape[0] > 3:
        return x[:3]
    elif x.shape == (2, 3):
        return x.reshape(3, 2)
    return x


@case()
def loop_over_rows(x):
    out = []
    for i in range(x.shape[0]):
        out.append(x[i] * i)
    return torch.stack(out)


@case()
def factories_from_sizes(x):
    n, m = x.shape
    return torch.zeros(n), torch.ones(n, m + 1), torch.arange(n), torch.eye(m), x.new_zeros(n, 2), torch.full((m,), n), torch.linspace(0, 1, n)


@case()
def reshape_from_sizes(x):
    b, d = x.shape
    return x.view(b * d), x.reshape(d, b), x.view(b, 1, d).expand(b, 2, d), x.view(*x.shape[:-1], -1, 1), x.unflatten(1, (1, d))


@case()
def sizes_in_containers(x):
    sizes = {"rows": x.shape[0], "shape": tuple(x.shape), "list": list(x.size())}
    return sizes, x.shape[0] in (2, 4), max(x.shape), sum(x.shape), math.prod(x.shape), x + sizes["rows"]


@case(call(ramp(2, 3), ramp(2, 3)), call(ramp(2, 3), ramp(3)), call(ramp(2, 3), ramp(2, 1)))
def comparing_shapes(x, y):
    if x.shape == y.shape:
        return x + y
    if x.shape[-1] == y.shape[-1]:
        return x - y
    return x * y


@case(call(ramp(2, 3)), call(ramp(0, 3)), call(ramp(1, 3)))
def zero_and_one(x):
    return x.sum(0), len(x), x.numel() == 0, x * 2, [r for r in x]


@case(call(ramp(2, 3)), call(ramp(2, 4)))
def validation(x):
    if x.shape[1] != 3:
        raise ValueError(f"expected 3 columns, got {x.shape[1]} in {tuple(x.shape)}")
    return x.sum(1)


@case(call(ramp(3)), call(ramp(2, 3)), call(torch.tensor(2.0)))
def number_of_dimensions(x):
    if x.ndim == 0:
        return x + 1
    if x.ndim == 1:
        return x.unsqueeze(0)
    return x.squeeze(0).sum(-1)


@case(call(ramp(6), 2), call(ramp(6), 3), call(ramp(8), 4))
def heads(x, n):
    assert x.shape[0] % n == 0
    return x.view(n, -1).transpose(0, 1).reshape(-1)


@case(call(ramp(5, 2)), call(ramp(7, 2)))
def halving(x):
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        x = x[:half] + x[-half:]
    return x


@case(call(ramp(2, 3)))
def size_errors(x):
    y = x + 1
    return y.view(4, -1)
