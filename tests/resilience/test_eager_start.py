"""options={"start": "eager"}: calls run eagerly while another process compiles, and compiled from some call on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import stator
from stator import events
from stator.backends import registry
from stator.backends.background import jobs
from stator.backends.eager import compile_eager

SLEEPS = "import time; time.sleep(300)"
ENDS = "pass"


def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x @ weight).sin() * 2 + x.sum()


def broken(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x @ weight
    stator.graph_break()
    return y.cos() + x


def arguments(rows: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 4), torch.randn(4, 4, requires_grad=True)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A program whose worker runs this text, compiled by nobody where that is not what is tested."""
    def start(worker: str | None = None, fn: Any = program, compiler: Any = compile_eager, **settings: Any) -> Any:
        if worker is not None:
            monkeypatch.setattr(jobs, "_WORKER", worker)
        if compiler is not None:
            monkeypatch.setitem(registry._backends, "inductor", replace(registry.find_backend("inductor"),
                                                                        given=compiler, prepare=None))
        monkeypatch.setattr(jobs, "warm_up", lambda: None)
        return stator.compile(fn, options={"start": "eager"}, isolate_recompiles=True, **settings)

    jobs.forget()
    yield start
    jobs.forget()


def agrees(compiled: Any, fn: Any = program, rows: int = 4) -> None:
    """One call, forward and backward, beside eager."""
    x, weight = arguments(rows)
    found, expected = compiled(x, weight), fn(x, weight)
    torch.testing.assert_close(found, expected)
    for left, right in zip(torch.autograd.grad(found.sum(), weight), torch.autograd.grad(expected.sum(), weight),
                           strict=True):
        torch.testing.assert_close(left, right)


def call_until(compiled: Any, kind: type, fn: Any = program, times: int = 1, seconds: float = 120) -> list[Any]:
    """Compare calls with eager until this event has come."""
    with events.record() as log:
        end = time.monotonic() + seconds
        while len([event for event in log if isinstance(event, kind)]) < times:
            assert time.monotonic() < end, f"no {kind.__name__} within {seconds} s: {log[-3:]}"
            agrees(compiled, fn)
            time.sleep(0.01)
    return [event for event in log if isinstance(event, kind)]


def eager_reasons(log: list[events.Event]) -> list[str]:
    return [event.why for event in log if isinstance(event, events.EagerFallback)]


def children() -> set[int]:
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children") as file:
            found.update(map(int, file.read().split()))
    return found


def has_ended(pid: int, seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def job() -> jobs.Job:
    [found] = jobs._jobs.values()
    return found


def test_another_process_compiles_and_the_caches_are_read(started: Any) -> None:
    before = children()
    compiled = started(compiler=None)
    counters.clear()
    [swapped] = call_until(compiled, events.SwappedIn)
    assert swapped.eager_calls >= 3
    assert counters["inductor"]["fxgraph_cache_hit"] and not counters["inductor"]["fxgraph_cache_miss"]
    with events.record() as log:
        agrees(compiled)
        agrees(compiled)
    assert not log, "compiled code runs"
    assert job().seconds > 0 and children() <= before, "no process is left"


def test_the_first_call_is_not_captured(started: Any) -> None:
    compiled = started(SLEEPS)
    with events.record() as log:
        agrees(compiled)
    assert [type(event) for event in log] == [events.EagerFallback] and "first call" in eager_reasons(log)[0]
    with events.record() as log:
        agrees(compiled)
        agrees(compiled)
    assert eager_reasons(log) == ["another process compiles it"] * 2
    assert len([event for event in log if isinstance(event, events.CaptureStarted)]) == 1
    assert job().process.pid in children()


def test_every_segment_is_swapped_in(started: Any) -> None:
    compiled = started(ENDS, broken)
    assert len(call_until(compiled, events.SwappedIn, broken, times=2)) == 2
    with events.record() as log:
        agrees(compiled, broken)
    assert not eager_reasons(log)


def test_sizes_that_change_meanwhile_are_symbolic(started: Any) -> None:
    compiled = started(ENDS)
    with events.record() as log:
        for rows in range(3, 40):
            agrees(compiled, rows=rows)
            time.sleep(0.05)
    assert any(isinstance(event, events.SwappedIn) for event in log)
    with events.record() as log:
        agrees(compiled, rows=97)
    assert not eager_reasons(log)


def test_a_worker_that_is_killed_leaves_calls_eager(started: Any) -> None:
    before = children()
    compiled = started(SLEEPS)
    agrees(compiled)
    agrees(compiled)
    os.kill(job().process.pid, signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match="killed by SIGKILL; its calls stay eager"):
        [found] = call_until(compiled, events.CompiledElsewhere)
    assert found.failure == "it was killed by SIGKILL"
    with events.record() as log:
        agrees(compiled)
    assert eager_reasons(log) == ["the process that compiled it failed: it was killed by SIGKILL"]
    assert children() <= before


def test_a_worker_that_fails_names_its_reason(started: Any) -> None:
    compiled = started("print('noise'); print('no compiler here'); raise SystemExit(1)")
    with pytest.warns(RuntimeWarning, match="no compiler here"):
        [found] = call_until(compiled, events.CompiledElsewhere)
    assert found.failure == "no compiler here"


def test_a_graph_that_cannot_be_sent_stays_eager(started: Any) -> None:
    own = stator.allow_in_graph(lambda x: x + 1)

    def calls_own(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return own(x @ weight)

    compiled = started(SLEEPS, calls_own)
    with pytest.warns(RuntimeWarning, match="cannot be sent to another process"):
        call_until(compiled, events.CompiledElsewhere, calls_own)
    assert job().process is None


def test_reset_ends_the_worker(started: Any) -> None:
    compiled = started(SLEEPS)
    agrees(compiled)
    agrees(compiled)
    pid = job().process.pid
    stator.reset()
    assert has_ended(pid) and pid not in children()
    agrees(compiled)


WORKS_LONG = """
import os, time, stator.backends.background.worker as worker
worker.compile_graph = lambda *args: (open(os.environ["STATOR_TEST_WORKS"], "w").close(), time.sleep(300))
worker.work()
"""

PARENT = f"""
import os, signal, sys, time, torch, stator
from stator.backends.background import jobs
jobs._WORKER = {WORKS_LONG!r}
jobs.warm_up = lambda: None
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

@stator.compile(options={{"start": "eager"}})
def f(x):
    return x.sin() + 1

for _ in range(3):
    f(torch.ones(3))
[job] = jobs._jobs.values()
while job.process.poll() is None and not os.path.exists(os.environ["STATOR_TEST_WORKS"]):
    time.sleep(0.05)
print(job.process.pid, job.process.poll(), flush=True)
"""


@pytest.mark.parametrize(("end", "status"), [("os.kill(os.getpid(), signal.SIGKILL)", -9), ("", 0),
                                             ("os.killpg(0, signal.SIGINT); time.sleep(9)", -2)])
def test_a_worker_ends_with_its_parent(end: str, status: int, tmp_path: Path) -> None:
    parent = subprocess.run([sys.executable, "-c", PARENT + end], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            env={**os.environ, "STATOR_TEST_WORKS": str(tmp_path / "works")}, text=True,
                            start_new_session=True, timeout=300)
    pid, running = parent.stdout.split()
    assert parent.returncode == status and running == "None"
    assert has_ended(int(pid))


def test_control_c_leaves_worker_and_function_as_they_are(started: Any) -> None:
    def interrupted(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 7:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        return x @ weight

    compiled = started(SLEEPS, interrupted)
    agrees(compiled, interrupted)
    agrees(compiled, interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            compiled(*arguments(7))
    finally:
        signal.signal(signal.SIGINT, before)
    assert os.getsid(job().process.pid) != os.getsid(0) and job().process.poll() is None
    agrees(compiled, interrupted)


def test_a_fork_has_no_job_and_leaves_that_of_its_parent(started: Any) -> None:
    compiled = started(SLEEPS)
    agrees(compiled)
    agrees(compiled)
    child = os.fork()
    if child == 0:
        try:
            agrees(compiled)
            jobs.forget()
            os._exit(7)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert job().process.poll() is None, "the worker of the parent goes on"
    agrees(compiled)


def test_two_threads(started: Any) -> None:
    compiled = started(textwrap.dedent("import time; time.sleep(1)"))
    wrong: list[BaseException] = []

    def call() -> None:
        try:
            for _ in range(60):
                agrees(compiled)
                time.sleep(0.05)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=call) for _ in range(2)]
    with events.record() as log:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert len([event for event in log if isinstance(event, events.SwappedIn)]) == 1
    assert len([event for event in log if isinstance(event, events.CompiledElsewhere)]) == 1


@pytest.mark.parametrize(("settings", "message"), [
    ({"options": {"start": "later"}}, "options['start']='later' is not accepted; use 'now' or 'eager'"),
    ({"options": {"start": "eager"}, "backend": "aot_eager"}, "not accepted with the backend 'aot_eager'"),
])
def test_other_values_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(stator.OptionError) as refused:
        stator.compile(program, **settings)
    assert message in str(refused.value)
