"""Patched functions and methods beside eager: before the first call, between calls, taken back, inside the call."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from patches import LOG, PATCHES, Patch

import stator
from tests.own_process import in_own_process

# p: patch; u: take it back; c: call
PHASES = {"before": "pcc", "between": "cpcc", "taken back": "pcucpc", "inside": "cc"}
# What torch's own code calls by name whenever a compiled graph runs, or finds in an operator's namespace.
OF_RUNTIME = frozenset({"__getattr__", "torch.is_grad_enabled"})


def inside(patch: Patch) -> Callable[[Any], Any]:
    def program(x):
        undo = patch.apply()
        try:
            return patch.program(x)
        finally:
            undo()
    return program


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return "tensor", tuple(value.size()), value.dtype, value.detach().tolist()
    if isinstance(value, (list, tuple)):
        return type(value), [shown(each) for each in value]
    return type(value), str(value)


def outcomes(patch: Patch, phase: str, compiler: Callable[..., Any]) -> list[Any]:
    """The value or exception of each call, and how often the replacement ran."""
    program = inside(patch) if phase == "inside" else (lambda x: patch.program(x))
    subject = compiler(program)
    x = torch.arange(6.0).reshape(2, 3) - 2
    seen: list[Any] = []
    with contextlib.ExitStack() as stack, contextlib.redirect_stdout(io.StringIO()):
        for step in PHASES[phase]:
            if step == "p":
                stack.callback(patch.apply())
            elif step == "u":
                stack.close()
            else:
                start = len(LOG)
                try:
                    value = subject(x)
                except Exception as error:  # an outcome to compare
                    value = error
                seen.append((value, LOG[start:]))
    return [(shown(value), log) for value, log in seen]


@pytest.mark.parametrize(("backend", "phase"), [
    *(("eager", phase) for phase in PHASES), ("aot_eager", "taken back"), ("aot_eager", "inside")])
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_is_as_in_eager(patch: Patch, phase: str, backend: str) -> None:
    if backend != "eager" and patch.name in OF_RUNTIME:
        pytest.skip("torch's own runtime uses it")

    def work() -> None:
        expected = outcomes(patch, phase, lambda fn: fn)
        assert outcomes(patch, phase, lambda fn: stator.compile(fn, backend=backend)) == expected

    # CPython takes tensors for sequences for ever, once Tensor.__getitem__ was replaced: torch.tensor([x.sum()]) raises then.
    (in_own_process if patch.name.startswith("__getitem__") else run)(work)


def run(work: Callable[[], None]) -> None:
    work()
