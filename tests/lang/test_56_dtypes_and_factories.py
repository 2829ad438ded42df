"""Dtypes, promotion with Python scalars, conversions, factory functions, constants."""

import numpy as np
import torch

from curriculum import call, case, ramp


@case(call(torch.arange(3)), call(ramp(3)), call(torch.tensor([True, False])), call(ramp(2).double()))
def promotion_with_scalars(x):
    return x + 1, x + 1.5, x * True, x / 2, 2 ** (x + 1), x == 1


@case(call(torch.arange(3), ramp(3)), call(ramp(3).half(), ramp(3)), call(torch.arange(3, dtype=torch.int8), torch.arange(3)))
def promotion_of_tensors(x, y):
    return x + y, (x * y).dtype, torch.result_type(x, y), torch.promote_types(x.dtype, y.dtype)


@case()
def conversions(x):
    return x.double(), x.half(), x.int(), x.bool(), x.to(torch.bfloat16), x.type(torch.int64), x.to(x.long()), x.to("cpu"), x.type_as(x.double())


@case()
def factories(x):
    return (torch.zeros(2, 3), torch.ones_like(x), torch.arange(0, 6, 2), torch.tensor([1, 2]), torch.tensor(3.5), torch.eye(2),
            torch.full((2,), 7), torch.empty(0), torch.linspace(0, 1, 3), torch.tril(torch.ones(3, 3)), x + 1)  # fmt: skip


@case()
def factories_with_options(x):
    return (torch.zeros(2, dtype=x.dtype, device=x.device), torch.arange(3, dtype=torch.float64), x.new_ones(2), x.new_full((1,), 3),
            torch.zeros_like(x, dtype=torch.int32), torch.ones(2, requires_grad=False) + 1)  # fmt: skip


@case(call(ramp(2), [1, 2]), call(ramp(2), [1.5, 2.0]), call(ramp(2), [True, False]))
def tensor_from_python_values(x, values):
    return torch.tensor(values) + x, torch.as_tensor(values).dtype, torch.tensor([values, values]).shape


@case(call(ramp(2)))
def constructors_of_numpy_numbers(x):
    values = [*np.arange(3, 5), np.uint8(200), True, np.float64(2.5)]
    return (torch.LongTensor(values[:2]) + x, torch.Tensor([values, (1, 2, 3, 4, 5)]), torch.BoolTensor(values),
            torch.ByteTensor(values), torch.LongTensor(list(np.array([2, 3]))))  # fmt: skip


@case(call(ramp(2)))
def tensor_constants_are_fresh(x):
    t = torch.tensor([1.0, 2.0])
    t.add_(x)
    return t


@case(call(ramp(2), torch.float64), call(ramp(2), torch.int32))
def dtype_argument(x, dtype):
    return x.to(dtype) + torch.ones(2, dtype=dtype), dtype.is_floating_point, dtype == torch.float64, str(dtype)


@case()
def dtype_tables(x):
    limits = {torch.float32: 1.0, torch.float64: 2.0}
    return x * limits[x.dtype], torch.finfo(x.dtype).eps, torch.iinfo(torch.int8).max, torch.finfo(torch.float16).max


@case(call(ramp(2)))
def device_objects(x):
    device = torch.device("cpu")
    return x.device == device, device.type, device.index, x.to(device) + 1, str(x.device), torch.zeros(1, device="cpu")


@case(call(torch.tensor([1, 2, 3], dtype=torch.uint8)), call(torch.tensor([250], dtype=torch.uint8)))
def integer_wraparound(x):
    return x + 10, x * 2, -x, x // 2, x.float() / 2


@case(call(ramp(2)))
def default_dtype(x):
    return torch.get_default_dtype(), torch.tensor(1.0).dtype, torch.arange(3).dtype, x * torch.tensor(2)


@case(call(ramp(2)))
def seeded_random_numbers(x):
    return x + torch.rand(2), torch.randn(2), torch.randint(0, 10, (3,)), torch.rand_like(x)


@case(call(ramp(2)))
def causal_mask(x):
    mask = torch.triu(torch.full((2, 2), float("-inf")), diagonal=1)
    return torch.softmax(x + mask, dim=-1)


@case(call(ramp(2, 3)), call(ramp(4, 2)))
def new_of_a_size(x):
    return (x.new(x.shape).fill_(1), x.data.new(x[0].size()).fill_(2), x.new(*x.shape).zero_(), x.new([2, 3]),
            x.new((2, 3)), x.new(2).fill_(3), x.new().shape, x.new(size=(2, 1)).fill_(4),
            torch.Tensor(x.shape).fill_(5), torch.Tensor(x.shape[0], 2).fill_(6))
