"""What numpy's functions are in torch.   np.sin  ->  torch.sin;  np.median  ->  torch._numpy's median

In: nothing.  Out: tables by the function itself.  A function that is in none of them has no form in torch: it is
interpreted where it is written in Python, and breaks otherwise.  Left out are functions of which torch's form gives
other values (heaviside of a NaN), leaves open what numpy promises (argsort of equal values, signs of eigenvectors), or
whose result's size is data.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy
import torch
import torch._numpy as forms


def sign(x: torch.Tensor) -> torch.Tensor:
    """torch's sign of a NaN is 0."""
    return torch.sign(x) if not x.is_floating_point() else torch.where(torch.isnan(x), x, torch.sign(x))


def cbrt(x: torch.Tensor) -> torch.Tensor:
    return torch.copysign(torch.pow(torch.abs(x), 1 / 3), x)


def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return forms.matmul(forms.ndarray(x), forms.ndarray(y)).tensor


def absolute(x: torch.Tensor) -> torch.Tensor:
    return x.clone() if x.dtype == torch.bool else torch.abs(x)


def positive(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


_SAME_NAME = """add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_not bitwise_or bitwise_xor
    ceil copysign cos cosh deg2rad divide exp exp2 expm1 float_power floor floor_divide fmax fmin fmod greater
    greater_equal hypot isfinite isinf isnan ldexp less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and
    logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal rad2deg reciprocal
    remainder signbit sin sinh sqrt square subtract tan tanh trunc""".split()
# numpy's ufunc -> the function of tensors that have the types of its loop
UFUNCS: dict[int, Any] = {id(getattr(numpy, name)): getattr(torch, name) for name in _SAME_NAME}
UFUNCS |= {id(ufunc): form for ufunc, form in (
    (numpy.absolute, absolute), (numpy.fabs, torch.abs), (numpy.conjugate, torch.conj_physical),
    (numpy.degrees, torch.rad2deg), (numpy.equal, torch.eq), (numpy.left_shift, torch.bitwise_left_shift),
    (numpy.matmul, matmul), (numpy.positive, positive), (numpy.power, torch.pow), (numpy.radians, torch.deg2rad),
    (numpy.right_shift, torch.bitwise_right_shift), (numpy.rint, torch.round), (numpy.sign, sign), (numpy.cbrt, cbrt))}
# Those of which torch's form takes a Python number as the second operand and gives what a tensor would give.
TAKES_NUMBERS = frozenset(map(id, (numpy.add, numpy.subtract, numpy.multiply, numpy.divide, numpy.less,
                                   numpy.less_equal, numpy.greater, numpy.greater_equal, numpy.equal,
                                   numpy.not_equal, numpy.power, numpy.remainder, numpy.floor_divide, numpy.fmod)))
# Of integers, zero as a divisor is a warning in numpy and an error in torch; so are negative powers in numpy.
DIVIDES = frozenset(map(id, (numpy.floor_divide, numpy.remainder, numpy.fmod, numpy.power)))
NOT_COMPLEX = frozenset(map(id, (
    numpy.power, numpy.float_power, numpy.sign, numpy.rint, numpy.maximum, numpy.minimum, numpy.fmax, numpy.fmin,
    numpy.greater, numpy.greater_equal, numpy.less, numpy.less_equal)))

OPERATORS: dict[Any, Any] = {
    operator.add: numpy.add, operator.sub: numpy.subtract, operator.mul: numpy.multiply, operator.truediv: numpy.divide,
    operator.floordiv: numpy.floor_divide, operator.mod: numpy.remainder, operator.pow: numpy.power,
    operator.matmul: numpy.matmul, operator.lshift: numpy.left_shift, operator.rshift: numpy.right_shift,
    operator.and_: numpy.bitwise_and, operator.or_: numpy.bitwise_or, operator.xor: numpy.bitwise_xor,
    operator.lt: numpy.less, operator.le: numpy.less_equal, operator.eq: numpy.equal, operator.ne: numpy.not_equal,
    operator.gt: numpy.greater, operator.ge: numpy.greater_equal,
    operator.neg: numpy.negative, operator.pos: numpy.positive, operator.invert: numpy.invert, abs: numpy.absolute,
}
IN_PLACE: dict[Any, Any] = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.itruediv: operator.truediv, operator.ifloordiv: operator.floordiv, operator.imod: operator.mod,
    operator.ipow: operator.pow, operator.imatmul: operator.matmul, operator.ilshift: operator.lshift,
    operator.irshift: operator.rshift, operator.iand: operator.and_, operator.ior: operator.or_,
    operator.ixor: operator.xor,
}

_FUNCTIONS = """atleast_1d atleast_2d atleast_3d concatenate vstack hstack dstack column_stack stack append array_split
    split hsplit vsplit dsplit kron vander corrcoef cov convolve correlate where expand_dims flip flipud fliplr rot90
    broadcast_to broadcast_arrays meshgrid tril triu isclose nan_to_num take take_along_axis clip repeat tile diagonal
    trace diag diagflat vdot tensordot dot inner outer cross einsum sort searchsorted moveaxis swapaxes rollaxis roll
    squeeze reshape transpose ravel diff angle sinc gradient round real imag iscomplex isreal isneginf isposinf i0 pad
    argmax argmin count_nonzero any all amax max amin min ptp sum prod mean std var cumsum cumprod average quantile
    percentile median copy empty_like full_like ones_like zeros_like fill_diagonal copyto""".split()
_LINALG = "cholesky det inv matrix_power norm pinv slogdet solve".split()
_FFT = """fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn hfft ihfft fftshift ifftshift""".split()
# Of these the result does not depend on the contents.
METADATA = frozenset(id(getattr(numpy, name)) for name in "shape ndim size iscomplexobj isrealobj result_type".split())
# numpy's function -> the same of torch._numpy, on its arrays
FUNCTIONS: dict[int, Any] = {id(getattr(numpy, name)): getattr(forms, name) for name in _FUNCTIONS}
FUNCTIONS |= {id(getattr(numpy.linalg, name)): getattr(forms.linalg, name) for name in _LINALG}
FUNCTIONS |= {id(getattr(numpy.fft, name)): getattr(forms.fft, name) for name in _FFT}
FUNCTIONS |= {id(numpy.array): forms.array, id(numpy.asarray): forms.asarray, id(numpy.asanyarray): forms.asarray,
              id(numpy.ascontiguousarray): forms.ascontiguousarray}

_METHODS = """clip repeat round squeeze swapaxes ravel diagonal dot trace searchsorted argmax argmin any all max min sum
    prod mean var std cumsum cumprod take conj conjugate astype copy flatten view fill sort transpose reshape""".split()
FUNCTIONS |= {id(getattr(numpy.ndarray, name)): getattr(forms.ndarray, name) for name in _METHODS}
# The same methods of scalars, which are the graph's where it holds them
SCALAR_METHODS = [getattr(numpy.generic, name) for name in _METHODS
                  if name not in ("fill", "sort", "view") and hasattr(numpy.generic, name)]
FUNCTIONS |= {id(method): FUNCTIONS[id(getattr(numpy.ndarray, method.__name__))] for method in SCALAR_METHODS}
_SLOTS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
          "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "matmul": operator.matmul,
          "lshift": operator.lshift, "rshift": operator.rshift, "and": operator.and_, "or": operator.or_,
          "xor": operator.xor}
# The methods behind operators -> the operator
SLOTS: dict[int, Any] = {id(getattr(numpy.ndarray, f"__{name}__")): function for name, function in _SLOTS.items()}
SLOTS |= {id(getattr(numpy.ndarray, f"__i{name}__")): inplace for name, function in _SLOTS.items()
          for inplace, plain in IN_PLACE.items() if plain is function}
SLOTS |= {id(getattr(numpy.ndarray, f"__{name}__")): getattr(operator, name)
          for name in "lt le eq ne gt ge neg pos invert".split()}
SLOTS[id(numpy.ndarray.__abs__)] = abs
REFLECTED: dict[int, Any] = {id(getattr(numpy.ndarray, f"__r{name}__")): function for name, function in _SLOTS.items()}
# Which write to their first argument; of the others, only `out` may change.
WRITES = frozenset(map(id, (numpy.fill_diagonal, numpy.copyto, numpy.ndarray.fill, numpy.ndarray.sort)))
# numpy's ufunc -> what its `reduce` is
REDUCTIONS: dict[int, Any] = {id(ufunc): form for ufunc, form in (
    (numpy.add, forms.sum), (numpy.multiply, forms.prod), (numpy.maximum, forms.max), (numpy.minimum, forms.min),
    (numpy.logical_and, forms.all), (numpy.logical_or, forms.any))}
