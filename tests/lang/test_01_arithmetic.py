"""Binary and unary operators on ints, floats and tensors."""

import torch

from curriculum import call, case, ramp
from tests.comparison import same_as_eager


@case()
def add_scalar(x):
    return x + 1


@case()
def every_tensor_operator(x, y):
    return x + y, x - y, x * y, x / (y + 10), x // (y + 10), x % (y + 10), x ** 2, x @ y.T


@case()
def reflected_scalars(x):
    return 2 + x, 2 - x, 2 * x, 2 / (x + 5), 2 ** x, 7 // (x + 5), 7 % (x + 5)


@case((6, 4), (-7, 2), (7, -2), graphs=0)
def every_int_operator(a, b):
    return [a + b, a - b, a * b, a / b, a // b, a % b, a ** 2, a << 2, a >> 1, a & b, a | b, a ^ b, -a, +a, ~a]


@case((6.5, 4.0), (-7.25, 2.0), (1e300, -3.0), graphs=0)
def every_float_operator(a, b):
    return [a + b, a - b, a * b, a / b, a // b, a % b, -a, +a, divmod(a, b), a.is_integer()]


@case(call(torch.tensor([6, 5, 4]), torch.tensor([3, 3, 2])), call(torch.tensor([1, 2]), torch.tensor([1, 1])))
def integer_tensor_operators(x, y):
    return x & y, x | y, x ^ y, ~x, x << y, x >> y, -x, x // y, x % y, x / y


@case()
def unary(x):
    return -x, +x, abs(x), (x > 0), ~(x > 0)


@case(call(ramp(3), 2), call(ramp(3), 3), call(ramp(3), 2.5), call(ramp(3), True))
def scalar_argument_of_several_types(x, n):
    return x * n + n


@case((ramp(2), 7, 3), (ramp(2), 9, 4))
def python_arithmetic_decides_the_graph(x, a, b):
    for _ in range(a % b):
        x = x * 2
    return x + a // b


@case()
def precedence(x):
    return -x ** 2 + 3 * x - 1 % 2 // 1, (x + 1) * 2 - x / 4, not 1 + 1 == 3


@case((2 ** 70, 3), (10 ** 30, 7), graphs=0)
def big_integers(a, b):
    return a * a, a // b, a % b, a ** 3 % b, -a // b, a.bit_length(), pow(a, b, 97)


@case((3 + 4j,), (1j,), graphs=0)
def complex_numbers(z):
    return z * z, abs(z), z.conjugate(), z.real, z.imag, z / (1 - 2j), z ** 2, -z


@case((ramp(2), 0), (ramp(2), 2))
def zero_division(x, n):
    y = x + 1
    return y * (1 // n)


@case((ramp(2), "a"), (ramp(2), [1]))
def unsupported_operand(x, other):
    x = x + 1
    return 3 + other


@case()
def bool_arithmetic(x):
    flag = x.dim() == 2
    return x + flag, flag + flag, flag * 3, -flag, flag & False, flag ^ True


def test_shifts_by_counts_that_change_sign():
    for program in (lambda x, k: x + (100 >> k), lambda x, k: x + (1 << k) % 1000):
        report = same_as_eager(program, *[call(torch.ones(2), k) for k in (3, -1, 70, 5)], dynamic=True, fullgraph=False)
        assert not report.failures
