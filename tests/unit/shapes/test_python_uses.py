"""Uses of sizes in Python and numpy, under dynamic=True: equal to eager, symbolic where no number is needed, and a
guard with the user's line where one is."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch
from counting import same

import stator

SIZES = (3, 5, 2, 7, 4, 1, 10)
# Two compiles: the symbolic one, and size 1. Three and four: one more for each branch.
SYMBOLIC = {
    "math.prod(shape)": (lambda x: x * math.prod(x.shape), 2),
    "slice": (lambda x: x[: x.shape[0] // 2], 2),
    "slice()": (lambda x: x[slice(0, x.shape[0] - 1)], 3),
    "isinstance": (lambda x: (x + 1, isinstance(x.shape[0], int), type(x.shape[0]) is int), 2),
    "divmod": (lambda x: (x + 1, divmod(x.shape[0], 3)), 2),
    "chained": (lambda x: x + 1 if 2 < x.shape[0] <= 5 else x - 1, 4),
    "in a tuple": (lambda x: x + 1 if x.shape[0] in (1, 2, 3) else x - 1, 4),
    "numel": (lambda x: x * x.numel() + x.shape.numel(), 2),
    "strides": (lambda x: (x + 1, x.stride(), x.t().stride(), x.storage_offset()), 2),
    "min, max, abs": (lambda x: x * min(x.shape[0], 40) + max(1, x.shape[0]) + abs(-x.shape[0]), 2),
    "floor, ceil": (lambda x: x * math.ceil(x.shape[0] / 2) + math.floor(x.shape[0] * 0.5), 2),
    "float": (lambda x: (x + 1, float(x.shape[0]), x.shape[0] / 3), 2),
    "int": (lambda x: x * int(x.shape[0]) + int(x.shape[0] * 0.5) + int(-x.shape[0] / 3), 2),
    "torch.Size": (lambda x: torch.zeros(torch.Size([x.shape[0], 2])) + 1, 2),
    "slices of the shape": (lambda x: x.new_zeros(x.shape[:1] + x.shape[1:]) + len(x.shape), 2),
    "and, or": (lambda x: x * (x.shape[0] or 5) + (x.shape[0] and 3), 2),
    "enumerate": (lambda x: sum(i * n * x for i, n in enumerate(x.shape)), 2),
    "arange": (lambda x: torch.arange(x.shape[0]) + x[:, 0], 2),
    "torch.tensor": (lambda x: torch.tensor(x.shape[0]) + x, 2),
    "stored": (lambda x: (x + 1, {"s": x.shape, "n": x.shape[0]}), 2),
    "compared with a text": (lambda x: x + (x.shape[0] == "3"), 2),
    "compared with a float": (lambda x: x + (1 if x.shape[0] > 3.5 else 2), 3),
    "negative index": (lambda x: x[-x.shape[0] + 1 :], 2),
    "is": (lambda x: (x + 1, x.shape[0] is None), 2),
    "negative floor": (lambda x: x * (-x.shape[0] // 3) + (-x.shape[0] % 3), 2),
    "mean of the shape": (lambda x: x * (sum(x.shape) / len(x.shape)), 2),
    "any, all": (lambda x: x + any(s > 5 for s in x.shape) + all(s for s in x.shape), 3),
    "power": (lambda x: x * x.shape[0] ** 2, 2),
    "round": (lambda x: x * round(x.shape[0] / 3), 2),
}
NUMBERS = {
    "np.zeros": lambda x: np.zeros(x.shape[0]).sum() + x,
    "np.arange": lambda x: x + np.arange(x.shape[0]).sum(),
    "np.prod": lambda x: x * int(np.prod(x.shape)),
    "np.int64": lambda x: x + np.int64(x.shape[0]),
    "np.array": lambda x: (x + 1, np.array(x.shape).tolist()),
    "range": lambda x: sum([x[i] for i in range(x.shape[0])]),
    "list of a range": lambda x: (x + 1, list(range(x.shape[0]))),
    "list repetition": lambda x: (x + 1, [0] * x.shape[0]),
    "text repetition": lambda x: (x + 1, "ab" * x.shape[0]),
    "f-string": lambda x: (x + 1, f"{x.shape[0]} rows"),
    "format": lambda x: (x + 1, f"{x.shape[0]:>4}"),
    "percent": lambda x: (x + 1, "%d" % x.shape[0]),  # noqa: UP031
    "str": lambda x: (x + 1, str(x.shape[0])),
    "repr": lambda x: (x + 1, repr(x.shape)),
    "dict key": lambda x: (x + 1, {x.shape[0]: 1}),
    "dict lookup": lambda x: x * {3: 2, 5: 7}.get(x.shape[0], 1),
    "hash": lambda x: (x + 1, hash(x.shape[0])),
    "set": lambda x: (x + 1, {*x.shape}),
    "sorted": lambda x: (x + 1, sorted(x.shape)),
    "round to tens": lambda x: x + round(x.shape[0], -1),
    "power modulo": lambda x: x + pow(x.shape[0], 2, 5),
    "bits": lambda x: (x + 1, x.shape[0] & 3, x.shape[0] | 1, x.shape[0] ^ 5, ~x.shape[0], x.shape[0] << 1, x.shape[0] >> 1),
    "bit_length": lambda x: (x + 1, x.shape[0].bit_length()),
    "methods of int": lambda x: (x + 1, x.shape[0].as_integer_ratio(), x.shape[0].to_bytes(2, "big")),
    "methods of Size": lambda x: (x + 1, x.shape.count(4), x.shape.index(4)),
    "index of a list": lambda x: x * [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11][x.shape[0]],
    "bytes": lambda x: (x + 1, bytes(x.shape[0])),
    "chr": lambda x: (x + 1, chr(65 + x.shape[0])),
    "bin, hex": lambda x: (x + 1, bin(x.shape[0]), hex(x.shape[0])),
    "isqrt, comb, gcd": lambda x: x * math.isqrt(x.shape[0]) + math.comb(x.shape[0], 2) + math.gcd(x.shape[0], 6),
}


def entries_after_calls(fn):
    compiled = stator.compile(fn, backend="eager", dynamic=True, fullgraph=True)
    for size in SIZES:
        x = torch.randn(size, 4)
        want, got = fn(x), compiled(x)
        assert same(want, got), f"{size}: {got!r} instead of {want!r}"
    return compiled.entries()


@pytest.mark.parametrize("name", SYMBOLIC)
def test_stays_symbolic(name):
    fn, most = SYMBOLIC[name]
    assert len(entries_after_calls(fn)) <= most


@pytest.mark.parametrize("name", NUMBERS)
def test_needs_the_number(name):
    """Each size is an entry, and a guard names the line that wanted the number."""
    fn = NUMBERS[name]
    entries = entries_after_calls(fn)
    assert len(entries) == len(SIZES)
    here = (inspect.getsourcefile(fn), fn.__code__.co_firstlineno)
    for _, _, tag in entries:
        pinned = [guard for guard in tag.guards if guard.kind.name == "SHAPE" and "size(0)" in guard.text()]
        assert all(guard.where is not None and guard.where[:2] == here for guard in pinned)
