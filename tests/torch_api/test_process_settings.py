"""Settings that are attributes of torch's modules, written inside captured code: read back, left behind, put back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import stator
from stator import events
from tests.torch_api.side_by_side import World, compare


@pytest.fixture(autouse=True)
def flags_as_found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # torch's own tests, where they were imported before, forbid it.
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
    cudnn = torch.backends.cudnn
    found = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, torch.backends.fp32_precision
    yield
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, torch.backends.fp32_precision = found


def written_and_read(x: Any) -> Any:
    torch.backends.cudnn.benchmark = True
    y = x + 1
    seen = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    return y, seen, torch.backends.cudnn.benchmark


def left_behind(x: Any) -> Any:
    torch.backends.cudnn.deterministic = True
    return x + 1


def of_several_names(x: Any) -> Any:
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.fp32_precision = "ieee"
    seen = torch.backends.cudnn.allow_tf32, torch.backends.fp32_precision
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.fp32_precision = "none"
    return x + 1, seen


def refused_by_torch(x: Any) -> Any:
    try:
        torch.backends.quantized.engine = "none"
    except RuntimeError as error:
        return str(error), x + 1
    return x


def within_contexts(x: Any) -> Any:
    with torch.backends.cudnn.flags(enabled=False, benchmark=True):
        seen = torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark
        y = x + 1
    with torch.backends.mkldnn.flags(enabled=False):
        y = y @ y
    return y, seen, torch.backends.cudnn.enabled, torch.backends.mkldnn.enabled


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [written_and_read, left_behind, of_several_names, refused_by_torch, within_contexts],
                         ids=lambda function: function.__name__)
def test_flags(function: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")

    def make() -> World:
        torch.backends.cudnn.deterministic = False
        return World(function, lambda step: (torch.full((3, 3), float(step)),),
                     lambda: (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic))
    seen = compare(make, calls=3, backend=backend)
    assert sum(seen.captures[1:]) == 0


# ---------------------------------------------------------------------- defaults of the process


def device_set_and_unset(x: Any) -> Any:
    torch.set_default_device(device="meta")
    y = torch.zeros(2).device.type
    torch.set_default_device(torch.device("cpu"))
    with torch.device("meta"):
        z = torch.zeros(2).device.type
    seen = torch.get_default_device().type, torch.ones(3).device.type
    torch.set_default_device(None)
    return y, z, seen, x + torch.ones(3)


def device_left(x: Any) -> Any:
    torch.set_default_device("meta")
    return torch.zeros(2).device.type, x + 1


def device_across_a_break(x: Any) -> Any:
    torch.set_default_device("meta")
    before = torch.zeros(2).device.type
    stator.graph_break()
    after = torch.zeros(2).device.type
    torch.set_default_device(None)
    return before, after, torch.zeros(2).device.type, x + 1


def device_of_no_name(x: Any) -> Any:
    try:
        torch.set_default_device("nowhere")
    except RuntimeError as error:
        return str(error)[:20], x + 1
    return x


def device_taken_back(x: Any) -> Any:
    before = torch.zeros(2).device.type
    torch.set_default_device(None)
    return before, torch.zeros(2).device.type, x + 1


def determinism(x: Any) -> Any:
    torch.use_deterministic_algorithms(True, warn_only=True)
    seen = torch.get_deterministic_debug_mode(), x.cumsum(0)
    torch.set_deterministic_debug_mode("error")
    return seen, torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def refused_determinism(x: Any) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return x.put_(torch.tensor([0, 0], device="cpu"), x[:2])
    except RuntimeError as error:
        return str(error)[:60]


def tensor_type(x: Any) -> Any:
    torch.set_default_tensor_type(torch.DoubleTensor)
    y = torch.zeros(3)
    torch.set_default_tensor_type(torch.FloatTensor)
    return y, x + torch.zeros(3)


def other_flags(x: Any) -> Any:
    with torch.backends.mkldnn.flags(enabled=False, deterministic=True):
        seen = torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic
    torch.backends.nnpack.set_flags(False)
    seen += (torch._C._get_nnpack_enabled(),)
    torch.backends.nnpack.set_flags(True)
    return seen, x + 1


WHOLE = {device_set_and_unset, device_left, device_taken_back, other_flags}
IN_ORDER = {determinism, tensor_type}  # whole where operators run one by one
BREAKING = {device_across_a_break, device_of_no_name, refused_determinism}


def found() -> Any:
    config = sys.modules.get("torch._inductor.config")
    return (str(torch.get_default_device()), str(torch.get_default_dtype()), torch.get_deterministic_debug_mode(),
            torch.backends.mkldnn.enabled, config is not None and config.deterministic)


@pytest.fixture
def as_found() -> Iterator[None]:
    yield
    torch.set_default_device(None)
    torch.use_deterministic_algorithms(False)
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("as_found")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("before", [None, "cpu", "meta"])
@pytest.mark.parametrize("function", sorted(WHOLE | IN_ORDER | BREAKING, key=lambda f: f.__name__), ids=lambda f: f.__name__)
def test_defaults(function: Any, before: str | None, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three calls that find the same defaults, then one that finds others."""
    monkeypatch.setenv("STATOR_STRICT", "1")

    def arguments(step: int) -> Any:
        torch.set_default_device(before if step < 3 else "cpu" if before is None else None)
        torch.use_deterministic_algorithms(step == 3)
        return (torch.full((3,), float(step), device="cpu"),)

    def make() -> World:
        return World(function, arguments, found)
    seen = compare(make, calls=4, backend=backend)
    mixes_devices = function is tensor_type and before == "meta"  # which fakes refuse, and real tensors do not
    if mixes_devices:
        assert "SB017" in seen.breaks
    elif function in WHOLE or function in IN_ORDER and backend == "eager":
        assert not seen.breaks, seen.causes
    if function is not refused_determinism:
        assert sum(seen.captures[1:3]) == 0, seen.captures


@pytest.mark.usefixtures("as_found")
def test_a_context_around_is_no_default_of_the_process() -> None:
    """torch itself takes the one for the other when the context is left: the call breaks, and does what torch does."""
    def function(x: Any) -> Any:
        torch.set_default_device(None)
        return torch.zeros(2).device.type, x + 1

    compiled = stator.compile(function, backend="eager")
    for inside in (False, True, False):
        seen = []
        for call in (function, compiled):
            with events.record() as log:
                if inside:
                    with torch.device("meta"):
                        seen.append((call(torch.ones(2, device="cpu"))[0], str(torch.get_default_device())))
                else:
                    torch.set_default_device("meta")
                    seen.append((call(torch.ones(2, device="cpu"))[0], str(torch.get_default_device())))
            torch.set_default_device(None)
        assert seen[0] == seen[1]
        assert {event.code for event in log if isinstance(event, events.GraphBreak)} == ({"SB006"} if inside else set())
