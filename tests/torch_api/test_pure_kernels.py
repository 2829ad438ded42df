"""Custom operators with Python kernels: pure ones are captured beside effects; whatever sees or changes state breaks."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import stator
from stator.graph.analysis.mutation import PURE_KERNELS
from tests.comparison import Programs, Surroundings, World, compare_worlds, require_same, stator_compiler

SCALE, LOG = 2.0, [0.0]
impure = Programs()


def grouped(x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    out, start = torch.zeros_like(x), 0
    for i, end in enumerate(offs.tolist()):
        if start == end:
            continue
        torch.mul(x[start:end], _factor(i), out=out[start:end])
        start = end
    return out


def _factor(number: int) -> float:
    return float(number + 1)


def setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.offs = inputs[1]


def formula(ctx: Any, grad: torch.Tensor) -> Any:
    return grouped(grad, ctx.offs), None


def operator(name: str, kernel: Any, backward: Any = None) -> Any:
    made = torch.library.custom_op(f"stator_pure::{name}", kernel, mutates_args=(), schema="(Tensor x, Tensor offs) -> Tensor")
    made.register_fake(lambda x, offs: torch.empty_like(x))
    if backward is not None:
        made.register_autograd(backward, setup_context=setup)
    return getattr(torch.ops.stator_pure, name)


PURE = operator("grouped", grouped, formula)


@impure
def prints(x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    print("kernel")
    return x * 2


@impure
def reads_a_global(x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return x * SCALE


@impure
def reads_a_list(x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return x * LOG[0]


@impure
def writes_a_global(x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    global SCALE
    SCALE = SCALE
    return x * 2


@impure
def imports(x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    import sys
    return x * len(sys.argv[:0])


@impure
def draws(x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return x * random.random() * 0


@impure
def draws_in_torch(x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return torch.rand_like(x) * 0


@impure
def draws_by_a_method(x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return (x * 2).uniform_() * 0


@impure
def marks_its_argument(x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    x.seen = True  # type: ignore[attr-defined]
    return x * 2


@impure
def has_a_default_list(x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return _appended(x)


def _appended(x: torch.Tensor, seen: list[int] = []) -> torch.Tensor:  # noqa: B006 shared on purpose
    return x * (len(seen) + 2)


IMPURE = {name: operator(name, kernel) for name, kernel in impure.items()}


def world(target: Any, grad: bool = False) -> World:
    notes: list[Any] = []

    def step(x: Any, offs: Any) -> Any:
        y = x + 1
        notes.append("before")
        y = target(y, offs) * 3
        notes.append("after")
        return target(y, offs).sum()

    given = [lambda seed=seed, ends=ends: ((torch.randn(6, 2, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad),
                                           torch.tensor(ends)), {}) for seed, ends in enumerate(([2, 2, 6], [0, 3, 6], [1, 2, 6]))]
    return World(step, given, Surroundings(__name__, __file__, lambda: notes))


@pytest.mark.parametrize("backend, grad", [("eager", False), ("eager", True), ("aot_eager", False), ("aot_eager", True)])
def test_pure_kernels_are_captured_beside_effects(backend: str, grad: bool) -> None:
    report = require_same(compare_worlds(lambda: world(PURE, grad), stator_compiler(backend)))
    assert not report.gave_up() and report.captures == [1, 0, 0]
    assert PURE in PURE_KERNELS


@pytest.mark.parametrize("name", impure)
def test_other_kernels_break_beside_effects(name: str) -> None:
    report = require_same(compare_worlds(lambda: world(IMPURE[name]), stator_compiler("eager")))
    assert set(report.breaks) == {"SB006"}
    assert IMPURE[name] not in PURE_KERNELS


def test_a_failing_pure_kernel_raises_as_in_eager() -> None:
    def step(x: Any, offs: Any, notes: list[int]) -> Any:
        notes.append(1)
        return PURE(x, offs)

    compiled = stator.compile(step, backend="eager")
    for function in (step, compiled, compiled):
        notes: list[int] = []
        with pytest.raises(TypeError, match="slice indices") as raised:
            function(torch.ones(2, 2), torch.ones(3), notes)  # ends that are floats
        assert notes == [1], raised
