"""No collection happens inside a capture; a backend compiles with the collector as the program has it."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import stator
from stator import events


@pytest.mark.parametrize("enabled", [True, False])
def test_collector(enabled: bool) -> None:
    seen: dict[str, bool] = {}

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        seen["backend"] = gc.isenabled()
        return gm.forward

    def listen(event: events.Event) -> None:
        if isinstance(event, (events.CaptureStarted, events.CaptureFinished)):
            seen[type(event).__name__] = gc.isenabled()

    before = gc.isenabled()
    stop = events.subscribe(listen)
    (gc.enable if enabled else gc.disable)()
    try:
        assert torch.equal(stator.compile(lambda x: x + 1, backend=backend)(torch.ones(2)), torch.full((2,), 2.0))
        assert gc.isenabled() is enabled
    finally:
        stop()
        (gc.enable if before else gc.disable)()
    assert seen == {"CaptureStarted": False, "backend": enabled, "CaptureFinished": False}


def test_errors_leave_it_as_it_was() -> None:
    def failing(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        raise RuntimeError("no")

    assert gc.isenabled()
    with pytest.raises(Exception, match="no"):
        stator.compile(lambda x: x + 1, backend=failing, fullgraph=True)(torch.ones(2))
    assert gc.isenabled()


def test_the_program_reads_its_own_setting() -> None:
    def asks(x: torch.Tensor) -> Any:
        return x + 1, gc.isenabled()

    assert stator.compile(asks, backend="eager")(torch.ones(2))[1] is True
