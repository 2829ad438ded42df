"""Torch's global state: each field is noticed by C++ and by Python, and comes back when restored."""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from agreement import holds
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import stator
from stator.guards.guard import Guard, Kind, global_state
from stator.guards.guard_semantics import explain
from stator.source import WORLD


@contextmanager
def default_dtype(dtype: torch.dtype) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def deterministic(warn_only: bool) -> Any:
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def autocast_cache_off() -> Any:
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(True)


@contextmanager
def cuda_autocast() -> Any:
    # torch.autocast refuses where there is no CUDA; the flag itself can be set anywhere.
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


@contextmanager
def vmapped() -> Any:
    level = torch._C._functorch._vmap_increment_nesting(2, "error")
    try:
        yield level
    finally:
        torch._C._functorch._vmap_decrement_nesting()


@contextmanager
def doubly_vmapped() -> Any:
    with vmapped(), vmapped():
        yield


CHANGES: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]]]] = {
    "no_grad": ("grad_enabled", torch.no_grad),
    "inference": ("inference_mode", torch.inference_mode),
    "autocast": ("autocast", lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "autocast dtype": ("autocast", lambda: torch.autocast("cpu", dtype=torch.float16)),
    "autocast cuda": ("autocast", cuda_autocast),
    "cache": ("autocast_cache", autocast_cache_off),
    "default dtype": ("default_dtype", lambda: default_dtype(torch.float64)),
    "deterministic": ("deterministic", lambda: deterministic(False)),
    "deterministic warn": ("deterministic_warn_only", lambda: deterministic(True)),
    "device": ("function_modes", lambda: torch.device("meta")),
    "cpu device": ("function_modes", lambda: torch.device("cpu")),
    "function mode": ("function_modes", TorchFunctionMode),
    "another function mode": ("function_modes", BaseTorchFunctionMode),
    "dispatch mode": ("dispatch_modes", TorchDispatchMode),
    "functorch": ("functorch_level", vmapped),
    "functorch twice": ("functorch_level", doubly_vmapped),
    "no subclass dispatch": ("torch_function_disabled", torch._C.DisableTorchFunctionSubclass),
    "no function dispatch": ("torch_function_disabled", torch._C.DisableTorchFunction),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed_and_forgotten(name: str) -> None:
    field, change = CHANGES[name]
    plain = Guard(WORLD, Kind.GLOBAL_STATE, global_state())
    assert holds(plain)
    with change():
        changed = Guard(WORLD, Kind.GLOBAL_STATE, global_state())
        assert not holds(plain)
        assert holds(changed)
        assert field in {difference for difference, _, _ in plain.value.differences(changed.value)}
        failure = explain(plain, ())
        assert failure is not None and field in failure.found
    assert holds(plain) and not holds(changed)


def test_states_that_differ_are_told_apart() -> None:
    states = {}
    for name, (_, change) in CHANGES.items():
        with change():
            states[name] = Guard(WORLD, Kind.GLOBAL_STATE, global_state())
    for name, (_, change) in CHANGES.items():
        with change():
            assert {other for other, guard in states.items() if holds(guard)} == {name}  # new modes of the same class


def test_a_default_device_counts_by_its_device() -> None:
    with torch.device("meta"):
        guard = Guard(WORLD, Kind.GLOBAL_STATE, global_state())
    with torch.device("meta"):
        assert holds(guard)
    with torch.device("cpu"):
        assert not holds(guard)
    with torch.device("meta"), torch.device("meta"):
        assert not holds(guard)


def test_the_words_name_what_is_unusual() -> None:
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"):
        text = global_state().text()
    for word in ("grad mode off", "autocast cpu torch.bfloat16", "default device meta"):
        assert word in text


def test_a_trace_of_torch_jit_gets_the_program_itself() -> None:
    """torch.jit.trace records sizes as values; a compiled graph that fits has them as numbers."""
    compiled = stator.compile(lambda x: x * x.shape[0], backend="eager", dynamic=False)
    for _ in range(3):
        compiled(torch.ones(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(lambda x: compiled(x), torch.ones(3), check_trace=False)
    assert torch.equal(traced(torch.ones(5)), torch.full((5,), 5.0))
