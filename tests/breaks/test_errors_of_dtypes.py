"""Errors of dtypes that kernels raise and rules for fakes do not, after a write and inside a `try`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import stator

F = torch.nn.functional
Operation = Callable[[torch.Tensor, torch.Tensor], object]
WRITES: dict[str, Operation] = {
    "imul": lambda a, b: a.__imul__(b),
    "mul_": lambda a, b: a.mul_(b),
    "multiply_": lambda a, b: a.multiply_(b),
    "add_ with an alpha": lambda a, b: a.add_(a, alpha=2.5),
    "addcmul_": lambda a, b: a.addcmul_(b, b),
    "foreach": lambda a, b: torch._foreach_mul_([a], [b]),
    "logit_": lambda a, b: a.logit_(),
    "div_ of a complex number": lambda a, b: (b + 0j).div_(b, rounding_mode="trunc"),
    "sub_ of bools": lambda a, b: (a > 0).sub_(a > 0),
}
ELEMENTWISE: dict[str, Operation] = {
    "and": lambda a, b: a & b,
    "or a number": lambda a, b: b | 1,
    "minus": lambda a, b: (a > 0) - 1,
    "relu": lambda a, b: torch.relu(a > 0),
    "comparison": lambda a, b: (b + 0j) < b,
    "heaviside": torch.heaviside,
}
OTHERS: dict[str, Operation] = {
    "matmul": lambda a, b: b[None] @ b.double()[:, None],
    "linear": lambda a, b: F.linear(b, a[None]),
    "softmax": lambda a, b: torch.softmax(a, 0),
    "std": lambda a, b: a.std(),
    "topk": lambda a, b: (b + 0j).topk(1),
    "addmm_": lambda a, b: torch.zeros(2, 2).addmm_(a[:, None], a[None]),
    "fill_": lambda a, b: torch.zeros(2, dtype=torch.uint8).fill_(300),
}
PROGRAMS = {**WRITES, **ELEMENTWISE, **OTHERS}


def outcome(program: Callable[..., object]) -> str:
    a, b = torch.tensor([1, 2]), torch.tensor([1.0, 0.5])
    try:
        result = program(a, b)
    except RuntimeError as error:
        result = f"raised {type(error).__name__}: {error}"
    return str((result, a, b))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_error_of_dtypes_after_a_write(name: str, backend: str) -> None:
    operation = PROGRAMS[name]

    def handled(a: torch.Tensor, b: torch.Tensor) -> object:
        a += 1
        try:
            return operation(a, b)
        except RuntimeError as error:
            return a * 2, str(error)

    def not_handled(a: torch.Tensor, b: torch.Tensor) -> object:
        a += 1
        return operation(a, b)

    for program in (handled, not_handled):
        expected = outcome(program)
        compiled = stator.compile(program, backend=backend)
        assert outcome(compiled) == expected
        assert outcome(compiled) == expected
