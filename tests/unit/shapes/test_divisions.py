"""Divisions and powers of numbers that only the graph knows raise what Python raises."""

from __future__ import annotations

import pytest
import torch

import stator

PROGRAMS = {
    "float": lambda x, t: x * (1.0 / t.item()),
    "size": lambda x, t: x * (x.shape[0] / t.item()),
    "int": lambda x, t: x * (1 / int(t)),
    "floor": lambda x, t: x * (7 // int(t)),
    "modulo": lambda x, t: x * (7 % int(t)),
    "divmod": lambda x, t: x * divmod(7, int(t))[0],
    "power": lambda x, t: x * t.item() ** -1,
}


def outcome(fn, *args):
    try:
        return fn(*args)
    except ZeroDivisionError as error:
        return str(error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_zero(name, backend, dtype):
    fn = PROGRAMS[name]
    compiled = stator.compile(fn, backend=backend)
    for value in (2, 4, 0, 3, 0):
        args = (torch.ones(3), torch.tensor(value, dtype=dtype))
        want, got = outcome(fn, *args), outcome(compiled, *args)
        assert type(want) is type(got)
        assert want == got if value == 0 else torch.allclose(want, got)


def by_floor(x, divisor):
    return x + 1 if (x.shape[0] - 10) // divisor == -7 // divisor else x * 2


def by_modulo(x, divisor):
    return x + 1 if (x.shape[0] - 10) % divisor == -1 % divisor else x * 2


def by_both(x, divisor):
    quotient, rest = divmod(x.shape[0] - 10, divisor)
    return (x + rest if quotient < 0 else x * 2) if quotient * divisor + rest < 5 else x - quotient


@pytest.mark.parametrize("divisor", [3, -3, 7])
@pytest.mark.parametrize("fn", [by_floor, by_modulo, by_both])
def test_a_size_that_comes_out_below_zero_decides(fn, divisor):
    """Guards round as Python does, towards minus infinity, and a remainder has the sign of the divisor."""
    compiled = stator.compile(fn, backend="eager", dynamic=True, options={"strict": True})
    for size in (20, 3, 4, 13, 9, 2, 5, 11, 8, 6, 7, 12, 21):
        x = torch.arange(float(size))
        assert torch.equal(compiled(x, divisor), fn(x, divisor)), size
