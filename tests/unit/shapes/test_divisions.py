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
