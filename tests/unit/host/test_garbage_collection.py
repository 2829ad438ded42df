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

    compiled = stator.compile(asks, backend="eager")
    assert compiled(torch.ones(2))[1] is True
    gc.disable()
    try:
        assert compiled(torch.ones(2))[1] is False
        assert stator.compile(asks, backend="eager")(torch.ones(2))[1] is False
    finally:
        gc.enable()
    assert compiled(torch.ones(2))[1] is True


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


@pytest.mark.parametrize(("objects", "collects"), [(100, False), (100_000, True)])
def test_a_backend_is_collected_behind_the_objects_of_the_trace(objects: int, collects: bool) -> None:
    found: list[str] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        gc.callbacks.append(note)
        kept = [[] for _ in range(objects)]  # type: ignore[var-annotated]
        gc.callbacks.remove(note)
        return gm.forward if kept else None

    def note(phase: str, info: dict[str, int]) -> None:
        found.append(phase)

    def many(x: torch.Tensor) -> torch.Tensor:
        for _ in range(60):
            x = torch.relu(x) + 1
        return x

    before = gc.get_threshold()
    assert torch.equal(stator.compile(many, backend=backend)(torch.ones(2)), many(torch.ones(2)))
    assert bool(found) is collects and gc.get_threshold() == before and gc.isenabled()


def test_a_backend_that_sets_the_threshold_keeps_it() -> None:
    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        gc.set_threshold(123, 4, 5)
        return gm.forward

    before = gc.get_threshold()
    try:
        stator.compile(lambda x: x * 3, backend=backend)(torch.ones(2))
        assert gc.get_threshold() == (123, 4, 5)
    finally:
        gc.set_threshold(*before)
