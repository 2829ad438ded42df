"""No collection happens inside a capture; a backend compiles with the collector as the program has it."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.host.garbage_collection import living


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


def test_a_weak_set_is_read_while_another_thread_adds_to_it() -> None:
    """Iterating over the set itself raises RuntimeError here, which the second half shows."""
    class Member:
        pass

    members: weakref.WeakSet[Member] = weakref.WeakSet()
    kept = [Member() for _ in range(500)]
    for member in kept:
        members.add(member)
    stop = threading.Event()

    def add() -> None:
        while not stop.is_set():
            others = [Member() for _ in range(50)]
            for other in others:
                members.add(other)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=add)
    thread.start()
    try:
        for _ in range(300):
            assert set(kept) <= set(living(members))
        with pytest.raises(RuntimeError, match="changed size"):
            while True:
                list(members)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)
