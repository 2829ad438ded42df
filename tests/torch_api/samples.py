"""The programs: one per module of torch's module database, and a few per operator of its operator database.

In: torch.testing's `module_db` and `op_db`.  Out: named factories of `Program`s; each call of a factory makes
function and inputs afresh from the same seed.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
import torch.testing._internal.common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

from torch_api.judge import Program


def _call_directly(op: Any, *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


# The samples of random operators seed the generator around the call; the judge seeds before it, once for both sides.
torch.testing._internal.common_methods_invocations.wrapper_set_seed = _call_directly

Factory = Callable[[], Program]
SAMPLES = 2
# torch.empty and its kin give whatever the memory holds.
ARBITRARY = frozenset({"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted"})


@dataclass(frozen=True)
class Sample:
    """One program of the databases."""

    name: str
    make: Factory
    arbitrary: bool = False


def seed() -> None:
    torch.manual_seed(7)
    random.seed(7)
    numpy.random.seed(7)


# ---------------------------------------------------------------------- modules


def module_samples(training: bool) -> Iterator[Sample]:
    for info in module_db:
        mode = "train" if training else "eval"
        yield Sample(f"{info.formatted_name}.{mode}", functools.partial(module_program, info, training))


def module_program(info: Any, training: bool) -> Program:
    """The first input of a module that has a forward input; it is built on the CPU in float32."""
    seed()
    inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
    sample = next(item for item in inputs if item.forward_input is not None)
    made = sample.constructor_input
    module = info.module_cls(*made.args, **made.kwargs)
    module.train(training)
    given = sample.forward_input

    def program(*args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    return Program(program, given.args, given.kwargs, module)


# ---------------------------------------------------------------------- operators


def operator_samples(variants: bool = True) -> Iterator[Sample]:
    for op in op_db:
        kinds = {"": op.op}
        if variants:
            kinds.update({".method": op.method_variant, ".inplace": op.inplace_variant})
        for suffix, function in kinds.items():
            if function is None:
                continue
            for index in range(SAMPLES if suffix == "" else 1):
                make = functools.partial(operator_program, op, function, index, suffix)
                yield Sample(f"{op.full_name}{suffix}#{index}", make, op.name in ARBITRARY)


def dtype_of(op: Any) -> torch.dtype:
    supported = op.supported_dtypes("cpu")
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64):
        if dtype in supported:
            return dtype
    return next(iter(supported))


class NoSample(Exception):
    """The database has fewer samples than asked for."""


def operator_program(op: Any, function: Any, index: int, suffix: str) -> Program:
    seed()
    dtype = dtype_of(op)
    wants_gradient = op.supports_autograd and dtype.is_floating_point and suffix != ".inplace"
    samples = op.sample_inputs("cpu", dtype, requires_grad=wants_gradient)
    sample = next(itertools.islice(samples, index, None), None)
    if sample is None:
        raise NoSample

    def program(value: Any, args: Any, kwargs: Any) -> Any:
        return function(value, *args, **kwargs)

    return Program(program, (sample.input, sample.args, sample.kwargs), {})
