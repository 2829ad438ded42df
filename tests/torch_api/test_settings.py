"""Torch's settings and a tensor's bookkeeping inside captured code: equal to eager, captured or broken as promised."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parents[1]))

from torch_api.judge import BROKEN, CAPTURED, Program, judge  # noqa: E402

PROGRAMS: list[tuple[Callable[..., Any], str]] = []


def captured(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append((function, ""))
    return function


def breaks(code: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append((function, code))
        return function
    return note


# ---------------------------------------------------------------------- grad mode


@captured
def whether_a_checkpoint_is_valid(x):
    return x + 1 if torch.autograd._is_checkpoint_valid() else x - 1


@captured
def sizes_as_a_tensor(x):
    return torch._shape_as_tensor(x), torch._shape_as_tensor(x.sum()) + 1, torch.onnx.operators.shape_as_tensor(x[0])


@captured
def whether_any_autocast_is_on(x):
    before = torch._C._is_any_autocast_enabled()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = torch._C._is_any_autocast_enabled()
    return x + before + 2 * inside, before, inside, torch._C._is_any_autocast_enabled()


@captured
def no_grad_block(x):
    with torch.no_grad():
        y = x * 2
    return y, x * 3, torch.is_grad_enabled()


@captured
def enable_grad_inside_no_grad(x):
    with torch.no_grad():
        with torch.enable_grad():
            y = x * 2
        z = x * 3
    return y, z


@captured
def grad_mode_left_off(x):
    torch.set_grad_enabled(False)
    return x * 2


@torch.no_grad()
def without_grad(x):
    return x * 2


@captured
def decorated(x):
    return without_grad(x), x * 2


@captured
def error_inside_no_grad(x):
    with torch.no_grad():
        return x.reshape(5, 5)


@captured
def inference_mode_block(x):
    with torch.inference_mode():
        y = x * 2
    return y.is_inference(), x * 2, torch.is_inference_mode_enabled()


@torch.inference_mode()
def inferred(x):
    return x * 2


@captured
def decorated_with_inference_mode(x):
    return inferred(x)


# ---------------------------------------------------------------------- autocast, dtypes, devices, kernels


@captured
def autocast_nested(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = F.linear(x, x)
        with torch.autocast("cpu", enabled=False):
            z = F.linear(x, x)
        said = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return y, z, said, x @ x.T, torch.is_autocast_enabled("cpu")


@torch.autocast("cpu", dtype=torch.bfloat16)
def autocasted(x):
    return x @ x.T


@captured
def autocast_decorated(x):
    return autocasted(x)


@captured
def default_dtype_restored(x):
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        y = torch.ones(3)
    finally:
        torch.set_default_dtype(old)
    return x + 1, y


@captured
def default_dtype_left_changed(x):
    torch.set_default_dtype(torch.float64)
    return x + torch.ones(3)


@captured
def device_block(x):
    with torch.device("meta"):
        y = torch.ones(3)
    return x + torch.ones(3), y.device


@captured
def attention_kernel_chosen(x):
    q = x.reshape(1, 1, 2, 3)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        return F.scaled_dot_product_attention(q, q, q)


@captured
def anomaly_block(x):
    with torch.autograd.set_detect_anomaly(True):
        y = x * 2
    return y, torch.is_anomaly_enabled()


@captured
def settings_read(x):
    return x + 1, torch.backends.cudnn.enabled, torch.get_float32_matmul_precision(), torch.get_num_threads()


@captured
def seeded(x):
    torch.manual_seed(3)
    return x + torch.rand(3)


@captured
def forked_generator(x):
    with torch.random.fork_rng(devices=[]):
        y = torch.rand(3)
    return x + y


@captured
def random_numbers(x):
    return torch.rand_like(x), torch.randn(3), F.dropout(x, 0.5, True), torch.randperm(4), torch.multinomial(torch.ones(4), 2)


# ---------------------------------------------------------------------- a tensor's bookkeeping


@captured
def flags_read(x):
    return x.requires_grad, (x * 2).requires_grad, x.is_leaf, (x * 2).is_leaf, x * 2


@captured
def flag_unchanged(x):
    x.requires_grad_(x.requires_grad)
    x.requires_grad = x.requires_grad
    return x * 2


@captured
def new_leaf(x):
    y = x.detach().requires_grad_()
    return y * 2, y


@captured
def new_leaf_by_assignment(x):
    y = torch.zeros(3)
    y.requires_grad = True
    return x + y, y


@captured
def grad_read_and_written(x):
    before = x.grad is None
    x.grad = torch.ones_like(x)
    return before, x.grad + 1, x * 2


@captured
def grad_cleared(x):
    x.grad = None
    return x * 2


@captured
def data_read(x):
    return x.data * 2, x.data.requires_grad, x.detach()


@captured
def data_changed_in_place(x):
    x.data.mul_(2)
    return x + 1


@captured
def no_grad_fn(x):
    return x.grad_fn is None, x * 2


@captured
def parameter_made_inside(x):
    return x * torch.nn.Parameter(torch.ones(3))


@breaks("SB005")
def storage(x):
    return x.untyped_storage().nbytes(), x + 1


@breaks("SB013")
def version(x):
    return x._version, x + 1


@captured
def old_constructors(x):
    return torch.Tensor([1.0, 2.0]), torch.LongTensor([[1, 2]]), torch.Tensor(2, 3).shape, x + 1


@captured
def checkpointed(x):
    return torch.utils.checkpoint.checkpoint(lambda t: torch.sin(t) * 2, x, use_reentrant=False)


@captured
def profiled(x):
    with torch.profiler.record_function("a"):
        return x + 1


# ---------------------------------------------------------------------- running them

ENTRIES: dict[str, Callable[[], Any]] = {
    "plain": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


@pytest.fixture(autouse=True)
def settings_as_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STATOR_STRICT", "1")
    yield
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)


def program_of(function: Callable[..., Any], wants_grad: bool) -> Callable[[], Program]:
    def make() -> Program:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        with torch.inference_mode(False):
            x = torch.arange(6.0).reshape(2, 3).requires_grad_(wants_grad)
        return Program(function, (x,), {}, backward=wants_grad)
    return make


@pytest.mark.parametrize("function,code", PROGRAMS, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("wants_grad", [False, True], ids=["", "grad"])
def test_equals_eager(function: Callable[..., Any], code: str, wants_grad: bool) -> None:
    verdict = judge(program_of(function, wants_grad))
    assert not verdict.bad, verdict
    assert (verdict.kind, verdict.code) == ((BROKEN, code) if code else (CAPTURED, "")) or verdict.kind == "raises", verdict


@pytest.mark.parametrize("entry", [name for name in ENTRIES if name != "plain"])
@pytest.mark.parametrize("function", [function for function, _ in PROGRAMS], ids=lambda value: value.__name__)
def test_equals_eager_under_settings(function: Callable[..., Any], entry: str) -> None:
    def under(x: torch.Tensor) -> Any:
        return function(x)

    with ENTRIES[entry]():
        make = program_of(under, True)

        def keeping_mode() -> Program:
            with contextlib.ExitStack() as stack:
                if entry == "no_grad":
                    stack.callback(torch.set_grad_enabled, False)
                return make()

        verdict = judge(keeping_mode)
    assert not verdict.bad, verdict
