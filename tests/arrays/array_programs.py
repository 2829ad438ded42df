"""Programs that use numpy on the memory of tensors, each a function of x (2 x 3 floats), y (3 x 3 floats), n (ints)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

# Expressions over the arrays a, b (float32), d (float64), i (int64), j (int32), m (bool), c (complex64).
EXACT = """a + 1 | 1 - a | a * 2.5 | a / 4 | a // 2 | a % 2 | a ** 2 | -a | +a | abs(a) | a @ b | a + d[0] | a == 1 | a != b[:2]
a > 1 | a <= a.T.T | i + 1 | i * 2 | i / 2 | i // 2 | i % 3 | i ** 2 | i << 1 | i >> 1 | i & 3 | i | j | i ^ j | ~i | ~m
m & m | m | (i > 1) | i + j | i + a[0] | j + a[0] | j / j | i * 1.5 | a + np.float64(0.1) | a * np.float32(3) | j + np.int64(1)
a + np.ones(3) | np.arange(3) + a | a + np.arange(3, dtype=np.float32) | m * 2 | m + 1 | np.add(a, 1) | np.multiply(a, i)
np.maximum(a, 1) | np.minimum(a, d[0]) | np.abs(c) | np.sign(a - 1) | np.floor(a / 2) | np.ceil(a / 2) | np.trunc(a / 2)
np.rint(a / 2) | np.square(i) | np.negative(j) | np.isnan(a) | np.isfinite(a) | np.isinf(a) | np.logical_and(m, m)
np.logical_not(a) | np.logical_or(i, 0) | np.copysign(a, -1) | np.signbit(a) | np.conj(c) | np.greater(a, 2)
np.fmax(a, 2) | np.fmin(a, 2) | np.hypot(a * 0, 2) | np.add(i, 1, dtype=np.float64) | np.positive(a) | np.remainder(a, 2)
a.sum() | a.sum(0) | a.sum(axis=1) | a.sum(axis=(0, 1)) | a.sum(axis=1, keepdims=True) | np.sum(i) | np.sum(m) | np.sum(j)
np.sum(a, dtype=np.float64) | a.prod() | i.prod() | a.max() | a.min(1) | np.max(a, axis=0) | np.amin(i) | np.ptp(a)
a.mean() | i.mean() | a.mean(0) | m.mean() | np.mean(d) | np.argmax(a) | a.argmin(1) | np.any(m) | np.all(m) | m.any(0) | m.all()
np.cumsum(a) | a.cumsum(1) | np.cumprod(i) | np.count_nonzero(a) | np.median(a) | np.median(a, axis=1) | np.average(a)
a.T | a.mT | a.real | c.real | c.imag | c.conj() | a.reshape(-1) | a.reshape(3, 2) | a.ravel() | a.flatten() | a.transpose()
a.transpose(1, 0) | a.swapaxes(0, 1) | np.moveaxis(a, 0, 1) | np.expand_dims(a, 0) | a[None] | a[:, None, :] | np.squeeze(a[None])
a[0] | a[-1] | a[0, 1] | a[1:] | a[:, 1] | a[..., 0] | a[::2] | a[::-1] | a[:, ::-1] | a[1, ::-2] | a[[0, 1]] | a[[1, 0], [0, 2]]
a[:, [2, 0]] | b[n] | b[n, n] | a[np.array([1, 0])] | b[np.argmax(a[0]), 1] | a[()] | d[0, 0] | m[0] | i[1] | a[-1:0:-1] | a[0:0:-1]
np.flip(a) | np.flipud(a) | np.fliplr(a) | np.rot90(a) | np.roll(a, 1) | np.roll(a, 1, axis=1) | np.tile(a, 2) | np.repeat(a, 2)
np.repeat(a, 2, axis=1) | np.concatenate([a, b]) | np.concatenate((a, b), axis=0) | np.vstack([a, b]) | np.hstack([a, a])
np.stack([a, a]) | np.stack((a, a), axis=-1) | np.dstack([a, a]) | np.column_stack([i, i]) | np.split(a, 3, axis=1)
np.array_split(a, 2, axis=1) | np.append(a, 1) | np.broadcast_to(a[0], (2, 3)) | np.where(m[0], a[0], 0) | np.where(a > 1, a, -a)
np.clip(a, 1, 3) | a.clip(1, 3) | np.tril(b) | np.triu(b) | np.diag(b) | np.diag(a[0]) | np.diagonal(b) | b.trace() | np.trace(b)
np.dot(a, b) | a.dot(b) | np.inner(a[0], a[1]) | np.outer(a[0], a[1]) | np.vdot(a[0], a[1]) | np.matmul(a, b) | np.tensordot(a, b, 1)
np.einsum('ij,jk->ik', a, b) | np.einsum('ii', b) | np.cross(a[0], a[1]) | np.kron(a, a) | np.sort(a, axis=0) | np.sort(-a)
np.searchsorted(a[0], 1.5) | np.take(a, n) | a.take(n, axis=1) | np.diff(a) | np.round(a / 3 * 2) | a.round() | np.nan_to_num(a)
np.real(a) | np.imag(c) | np.iscomplex(c) | np.isreal(a) | np.zeros_like(a) | np.ones_like(i) | np.full_like(a, 2) | np.copy(a)
a.copy() | a.astype(np.int64) | a.astype('float64') | a.astype(np.float32) | i.astype(float) | a.astype(bool) | np.asarray(a)
np.array(a) | np.array([a[0], a[1]]) | np.array([a.sum(), a.max()]) | np.asarray(a, dtype=np.float64) | np.array(a, dtype=int)
np.ascontiguousarray(a.T) | np.atleast_2d(a[0]) | np.atleast_1d(a.sum()) | np.meshgrid(a[0], a[1]) | np.pad(a, 1)
a.shape | a.ndim | a.size | a.dtype | len(a) | np.shape(a) | np.ndim(a) | np.size(a) | a.strides | a.itemsize | a.nbytes
a.sum().dtype | a.sum().shape | a.sum() + 1 | a.sum() * a | 2 * a.sum() | a.sum() / i.sum() | -a.sum() | a.sum() > 3 | a.sum() == a.max()
a.sum().astype(np.float64) | np.float64(a.sum()) | np.sqrt(a.sum() + 1) | a.sum().item() | float(a.max()) | int(i.max()) | a.tolist() | i[0].item()
[r.sum() for r in a] | [v for v in a[0]] | type(a.sum()) | isinstance(a.sum(), np.floating) | isinstance(a, np.ndarray)
np.result_type(a, d) | np.add.reduce(a) | np.maximum.reduce(a, axis=1) | np.isclose(a, a + 1e-9) | a.squeeze() | a.view(np.int32)
np.linalg.matrix_power(b, 2) | np.fft.fftshift(a) | a.repeat(2) | np.convolve(a[0], a[1]) | np.gradient(a[0])"""

CLOSE = """np.sin(a) | np.cos(a) | np.tan(a) | np.exp(a) | np.log(a + 1) | np.log1p(a) | np.sqrt(a) | np.tanh(a) | np.exp2(a)
np.expm1(a) | np.log2(a + 1) | np.log10(a + 1) | np.arctan2(a, 2) | np.sinh(a) | np.cosh(a) | np.arctan(a) | np.arcsinh(a)
np.sin(i) | np.sqrt(j) | np.exp(c) | np.power(a, 0.5) | a ** 0.5 | np.float_power(a, 2) | np.deg2rad(a) | np.rad2deg(a)
np.logaddexp(a, a) | np.reciprocal(a + 1) | np.cbrt(a - 2) | np.hypot(a, a) | a.std() | a.var(0) | np.std(a, axis=1, ddof=1)
np.linalg.norm(a) | np.linalg.inv(b) | np.linalg.det(b) | np.linalg.solve(b, a[0])
np.percentile(a, 30) | np.quantile(a, 0.25) | np.fft.fft(d[0]) | np.sinc(a) | np.angle(c)
np.linalg.norm(a, axis=1) | np.linalg.pinv(b) | np.average(a, weights=a + 1) | (a - a.mean()) / a.std() | np.exp(a).sum()"""


def expressions(text: str) -> list[str]:
    return [part.strip() for line in text.splitlines() for part in line.split(" | ")] if "i | j" not in text else [
        part.replace("@OR@", " | ") for part in expressions(text.replace("i | j", "i@OR@j").replace("m | (", "m@OR@("))]


def inputs(shift: float = 0.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.arange(6.).reshape(2, 3) * 0.75 + shift
    y = torch.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.0, 2.0, 5.0]]) + shift
    return x, y, torch.tensor([2, 0, 1])


def program(expression: str) -> Any:
    """The expression as a function of tensors."""
    lines = ["def run(x, y, n):", "    a, b, n = x.numpy(), y.numpy(), n.numpy()", "    d = y.double().numpy()",
             "    i, j = n + 1, (n + 2).astype(np.int32)", "    m, c = a > 1, (y + 1j).numpy()",
             f"    return {expression}"]
    space: dict[str, Any] = {"np": np, "torch": torch}
    exec(compile("\n".join(lines), f"<{expression}>", "exec"), space)
    return space["run"]
