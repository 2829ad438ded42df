"""A backend that raises, lies about its arity, is interrupted or runs out of memory; and the next call is right.

In: deliberately bad backends.  Out: one error that names the backend, no entry left behind, and a good call after.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.errors import BackendError


def program(x: torch.Tensor, log: list[int]) -> torch.Tensor:
    log.append(1)
    return (x + 1).relu()


class Moody:
    """Fails the first `times` compilations with `fault`, then compiles."""

    def __init__(self, fault: Callable[[], Any], times: int = 1) -> None:
        self.fault, self.times = fault, times

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        if self.times:
            self.times -= 1
            return self.fault()
        return gm.forward


def good_after(compiled: Any) -> None:
    log: list[int] = []
    x = torch.randn(4)
    assert torch.equal(compiled(x, log), (x + 1).relu())
    assert log == [1]
    assert torch.equal(compiled(x, log), (x + 1).relu())
    assert log == [1, 1]


def throw(error: BaseException) -> Callable[[], Any]:
    def fault() -> Any:
        raise error

    return fault


def test_backend_raises() -> None:
    compiled = stator.compile(program, backend=Moody(throw(ValueError("no such tile"))))
    log: list[int] = []
    with pytest.raises(BackendError, match="no such tile"):
        compiled(torch.randn(4), log)
    assert log == [], "the effects of a call that was never made"
    good_after(compiled)


def test_backend_out_of_memory() -> None:
    compiled = stator.compile(program, backend=Moody(throw(MemoryError("cannot allocate 3 TiB"))))
    with pytest.raises(BackendError, match="cannot allocate"):
        compiled(torch.randn(4), [])
    good_after(compiled)


@pytest.mark.parametrize("result", [None, 7, "graph"])
def test_backend_returns_no_function(result: Any) -> None:
    compiled = stator.compile(program, backend=Moody(lambda: result))
    with pytest.raises(BackendError, match="not callable"):
        compiled(torch.randn(4), [])
    good_after(compiled)


@pytest.mark.parametrize("outputs", [(), (1, 2, 3), None, 5])
def test_compiled_graph_returns_the_wrong_number(outputs: Any) -> None:
    """The graph has one output; what comes back is not one tensor: an error that names the backend, never a value."""
    compiled = stator.compile(program, backend=Moody(lambda: lambda *args: outputs))
    with pytest.raises(BackendError, match="Moody"):
        compiled(torch.randn(4), [])


def test_interrupt_while_a_backend_compiles() -> None:
    """Ctrl-C in the middle of a minute of compilation: KeyboardInterrupt at once, and nothing is left locked."""
    def slow() -> Any:
        time.sleep(60)
        return None

    compiled = stator.compile(program, backend=Moody(slow))
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    timer.start()
    started = time.perf_counter()
    log: list[int] = []
    try:
        with pytest.raises(KeyboardInterrupt):
            compiled(torch.randn(4), log)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.perf_counter() - started < 20
    assert log == []
    good_after(compiled)
    worker = threading.Thread(target=good_after, args=(stator.compile(program, backend="eager"),))
    worker.start()
    worker.join(60)
    assert not worker.is_alive(), "the lock of the compiler is still held"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_is_not_an_error_passes_through(error: BaseException) -> None:
    compiled = stator.compile(program, backend=Moody(throw(error)))
    with pytest.raises(type(error)):
        compiled(torch.randn(4), [])
    good_after(compiled)


def test_graph_that_fails_at_run_time() -> None:
    """The call is made again as it is, and says so; later calls are made."""
    calls = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        def run(*args: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                raise RuntimeError("device lost")
            return gm.forward(*args)

        return run

    compiled = stator.compile(program, backend=backend)
    x = torch.randn(4)
    with pytest.warns(RuntimeWarning, match="a compiled graph raised RuntimeError: device lost"):
        first = compiled(x, [])
    assert torch.equal(first, (x + 1).relu())
    good_after(compiled)


def test_a_backend_that_failed_is_let_go() -> None:
    import weakref

    backend = Moody(throw(ValueError("no")), times=3)
    compiled = stator.compile(program, backend=backend)
    for _ in range(3):
        with pytest.raises(BackendError):
            compiled(torch.randn(4), [])
    gone = weakref.ref(backend)
    del backend, compiled
    gc.collect()
    assert gone() is None
