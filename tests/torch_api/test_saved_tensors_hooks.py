"""Hooks on saved tensors around a compiled call: they see what eager shows them, and nothing of the trace."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import stator
from stator import events


def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * y + x.sin() * y


def seen(function: Any) -> list[Any]:
    log: list[Any] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        log.append(("pack", type(tensor), tuple(tensor.shape)))
        return tensor

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        log.append("unpack")
        return tensor

    x, y = torch.ones(4, requires_grad=True), torch.full((4,), 2.0)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        function(x, y).sum().backward()
    return [*log, x.grad]


def test_the_same_calls_as_in_eager() -> None:
    compiled = stator.compile(forward, backend="eager")
    expected = seen(forward)
    for _ in range(2):
        found = seen(compiled)
        assert found[:-1] == expected[:-1] and torch.equal(found[-1], expected[-1])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_no_fake_reaches_them(backend: str) -> None:
    compiled = stator.compile(forward, backend=backend)
    first, second = seen(compiled), seen(compiled)
    assert first[:-1] == second[:-1] and torch.equal(first[-1], second[-1])
    assert {call[1] for call in first[:-1] if call != "unpack"} == {torch.Tensor}


def test_older_questions_about_autocast() -> None:
    def asked(x: torch.Tensor) -> torch.Tensor:
        on = torch.is_autocast_cpu_enabled()
        size = torch.get_autocast_cpu_dtype().itemsize + torch.get_autocast_gpu_dtype().itemsize
        return x + on * 10 + size + torch._C._are_functorch_transforms_active()

    compiled = stator.compile(asked, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for enabled in (False, True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            assert torch.equal(compiled(x), asked(x))


# ---------------------------------------------------------------------- inside captured code

message_of = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message


def forbidden(x: torch.Tensor) -> Any:
    with disable_saved_tensors_hooks("outer"):
        with disable_saved_tensors_hooks("inner"):
            y, said = x * x, message_of()
        said += message_of()
    return y.sin(), said, message_of()


def forbidden_across_a_break(x: torch.Tensor) -> Any:
    with disable_saved_tensors_hooks("why"):
        y = x * x
        stator.graph_break()
        y = y.sin()
    return y, message_of()


def forbidden_and_used(x: torch.Tensor) -> Any:
    with disable_saved_tensors_hooks("why"), save_on_cpu():
        return x * x


def forbidden_checkpoint(x: torch.Tensor) -> Any:
    with disable_saved_tensors_hooks("why"):
        return checkpoint(torch.sin, x, use_reentrant=False)


def checkpointed(x: torch.Tensor) -> Any:
    return checkpoint(torch.sin, x, use_reentrant=False)


def on_the_cpu(x: torch.Tensor) -> Any:
    y = x * x
    with save_on_cpu():
        y = y.sin()
    return y * x


def rounded(value: torch.Tensor) -> list[float]:
    return [round(each, 4) for each in value.tolist()]  # compilers add gradients up in another order


WHOLE = {forbidden, checkpointed}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [forbidden, forbidden_across_a_break, forbidden_and_used, forbidden_checkpoint,
                                      checkpointed, on_the_cpu], ids=lambda function: function.__name__)
def test_hooks_and_their_absence_inside(function: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls that find the same state, one with hooks around it, one where they are forbidden, one as at first."""
    monkeypatch.setenv("STATOR_STRICT", "1")
    compiled = stator.compile(function, backend=backend)
    plain = contextlib.nullcontext
    around: list[Any] = [plain, plain, save_on_cpu, lambda: disable_saved_tensors_hooks("around"), plain]
    for number, context in enumerate(around):
        found = []
        with events.record() as log:
            for call in (function, compiled):
                x = torch.full((3,), 1.0 + number, requires_grad=True)
                try:
                    with context():
                        value = call(x)
                    first = value[0] if type(value) is tuple else value
                    first.sum().backward()
                    found.append((rounded(first), value[1:] if type(value) is tuple else None, rounded(x.grad)))
                except RuntimeError as error:
                    found.append(str(error))
                found.append(message_of())
        assert found[:2] == found[2:], number
        if number < 2 and function in WHOLE:
            assert not [event for event in log if isinstance(event, events.GraphBreak)]
        if number == 1 and function is not forbidden_and_used and function is not forbidden_checkpoint:
            assert not [event for event in log if isinstance(event, events.CaptureFinished)]


# ---------------------------------------------------------------------- objects that hooks look at, around a call


class Settings:
    scale = 1.0
    loud = False

    def __init__(self) -> None:
        self.scale = 1.0


SETTINGS, PACKED = Settings(), []
LEVEL = 1.0


def scaled_by_all(tensor: torch.Tensor) -> Any:
    PACKED.append(len(PACKED))
    if Settings.loud:
        print("packed", SETTINGS.scale)
    return tensor * (SETTINGS.scale * LEVEL)


def switched(x: torch.Tensor) -> Any:
    SETTINGS.scale = 2.0
    y = (x * x).sin()
    SETTINGS.scale = 1.0
    return y * x


def left_switched(x: torch.Tensor) -> Any:
    y = x * x
    SETTINGS.scale = 3.0
    return y.sin()


def in_a_global(x: torch.Tensor) -> Any:
    global LEVEL
    y = x * x
    LEVEL = 5.0
    y = y.sin()
    LEVEL = 1.0
    return y


def on_the_class(x: torch.Tensor) -> Any:
    Settings.loud = True
    y = x * x
    Settings.loud = False
    return y.sin()


def in_a_list(x: torch.Tensor) -> Any:
    PACKED.append("mine")
    y = x * x
    PACKED.append("too")
    return y.sin()


def printed(x: torch.Tensor) -> Any:
    Settings.loud = True
    print("before")
    y = x * x
    print("between")
    y = y.sin()
    print("after")
    return y


def in_a_call(x: torch.Tensor) -> Any:
    def scaled(by: float) -> torch.Tensor:
        SETTINGS.scale = by
        return (x * x).sin()

    return sum(map(scaled, [2.0, 3.0]))


@pytest.mark.parametrize("function", [switched, left_switched, in_a_global, on_the_class, in_a_list, printed, in_a_call],
                         ids=lambda function: function.__name__)
def test_objects_are_as_in_eager_when_hooks_look(function: Any, capsys: pytest.CaptureFixture[str],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """First without hooks, so that an entry is there which writes to the objects after its graph."""
    monkeypatch.setenv("STATOR_STRICT", "1")
    compiled = stator.compile(function, backend="eager")
    plain, hooked = contextlib.nullcontext, lambda: saved_tensors_hooks(scaled_by_all, lambda packed: packed)
    for number, around in enumerate((plain, hooked, hooked, save_on_cpu, hooked, plain)):
        found = []
        for call in (function, compiled):
            SETTINGS.scale, Settings.loud = 1.0, False
            PACKED.clear()
            x = torch.full((3,), 1.0 + number, requires_grad=True)
            with around():
                value = call(x)
            value.sum().backward()
            found.append((value.tolist(), x.grad.tolist(), list(PACKED), SETTINGS.scale, LEVEL, Settings.loud,
                          capsys.readouterr().out))
        assert found[0] == found[1], number


def test_nothing_breaks_where_nothing_is_written() -> None:
    def plain(x: torch.Tensor, config: Any) -> Any:
        found = [x * config.scale]
        found.append(found[0].sin())
        return found

    compiled = stator.compile(plain, backend="eager", fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    with saved_tensors_hooks(scaled_by_all, lambda packed: packed):
        compiled(x, SETTINGS)
    with events.record() as log:
        compiled(x, SETTINGS)
    assert not [event for event in log if isinstance(event, events.CaptureFinished)]
