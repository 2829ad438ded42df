"""One CPython test at a time, as CPython runs it and compiled, each in a forked child.

In: the name of a module of the interpreter's `test` package.  Out: one `Outcome` per test method: how it ended in
eager, how it ended compiled, and what Stator's events said.

A child has a time limit and a memory limit, so a hang, a crash or a runaway is one outcome and not the end of the run.
It is the head of a process group of its own, which ends with it, and it ends with the runner.
"""

from __future__ import annotations

import contextlib
import ctypes
import doctest
import faulthandler
import gc
import importlib
import inspect
import json
import os
import resource
import signal
import tempfile
import time
import traceback
import types
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stator import api, config, errors, events
from tests.cpython import extension_rows

SECONDS = 20.0  # of processor time: on a busy machine a test is not slower for it
PATIENCE = 10.0  # how many times as long it may take by the clock
EXTRA_MEMORY = 4 << 30
ITERATIONS = 5_000_000  # of loops that one capture follows: the time limit ends a test before that
PR_SET_PDEATHSIG = 1  # of Linux' prctl: the signal a process gets when its parent dies


@dataclass
class Ending:
    """How one run of one test ended. `status`: passed, failed, skipped, refused, crashed or timeout."""

    status: str
    detail: str = ""
    breaks: list[str] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    internal: list[str] = field(default_factory=list)


@dataclass
class Outcome:
    test: str
    eager: Ending
    compiled: Ending | None  # None when the test does not pass in eager

    def verdict(self) -> str:
        if self.compiled is None:
            return "not run"
        if self.compiled.status == "failed":
            return "different"
        if self.compiled.status not in ("passed", "refused"):
            return self.compiled.status
        if self.compiled.internal:
            return "internal"
        return "broke" if self.compiled.breaks or self.compiled.fallbacks else "whole"


def cases_of(module_name: str) -> list[unittest.TestCase]:
    module = importlib.import_module(f"test.{module_name}")
    return list(_flat(unittest.TestLoader().loadTestsFromModule(module)))


def _flat(suite: Any) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _flat(item)
        elif hasattr(item, "_testMethodName") and not isinstance(item, doctest.DocTestCase):
            if not isinstance(item, unittest.loader._FailedTest):  # type: ignore[attr-defined]
                yield item


def name_of(case: unittest.TestCase) -> str:
    return f"{type(case).__qualname__}.{case._testMethodName}"


def run_module(module_name: str, wanted: Callable[[str], bool] = lambda name: True,
               fullgraph: bool = False) -> Iterator[Outcome]:
    cases = cases_of(module_name)
    extension_rows.declare()
    with config.patch(capture_iteration_limit=ITERATIONS):
        api.compile(len_of, backend="eager")([])  # what the first capture loads, the children inherit
        gc.collect()
        gc.freeze()  # tests call gc.collect() again and again: what is loaded by now is not theirs to scan
        for case in cases:
            if not wanted(name_of(case)):
                continue
            eager = in_child(lambda case=case: run_case(case, compiled=False))
            compiled = None
            if eager.status == "passed":
                compiled = in_child(lambda case=case: run_case(case, compiled=True, fullgraph=fullgraph))
            yield Outcome(name_of(case), eager, compiled)


def len_of(items: list[Any]) -> int:
    return len(items)


def run_case(case: unittest.TestCase, compiled: bool, fullgraph: bool = False) -> Ending:
    """Run it here, with the fixtures of its class and module."""
    name = case._testMethodName
    body = getattr(case, name)
    if inspect.iscoroutinefunction(body):
        body = case.__dict__[name] = types.MethodType(run_coroutine, case)
    if compiled:
        case.__dict__[name] = api.compile(body, backend="eager", fullgraph=fullgraph)
    result = unittest.TestResult()
    refused = note_refusals()
    with events.record() as log:
        unittest.TestSuite([case]).run(result)
    ending = Ending("passed")
    wrong = [text for _, text in (*result.errors, *result.failures)]
    if wrong or result.unexpectedSuccesses:
        ending.status, ending.detail = "failed", wrong[0] if wrong else "unexpected success"
    elif result.skipped and not compiled:
        ending.status = "skipped"
    if refused and ending.status == "failed":
        ending.status = "refused"  # by fullgraph=True, which is no wrong answer
    ending.breaks.extend(refused)
    for event in log:
        if isinstance(event, events.GraphBreak):
            ending.breaks.append(f"{event.code}: {event.cause}")
        elif isinstance(event, events.EagerFallback):
            ending.fallbacks.append(event.why)
        elif isinstance(event, events.InternalFailure):
            ending.internal.append("".join(traceback.format_exception(event.error)))
    return ending


def run_coroutine(case: unittest.TestCase) -> object:
    """An async test to its end, without a loop: the call of its method alone would make a coroutine, and run nothing."""
    coroutine = getattr(type(case), case._testMethodName)(case)
    while True:
        try:
            if coroutine.send(None) is not None:
                raise RuntimeError("the test waits for a loop")
        except StopIteration as ending:
            return ending.value


def note_refusals() -> list[str]:
    """A list that gets the cause of each error of fullgraph=True in this process, also where the test handles the error."""
    refused: list[str] = []
    make = errors.Unsupported.__init__

    def noting(self: errors.Unsupported, code: str, title: str, cause: str = "", *rest: Any, **named: Any) -> None:
        refused.append(f"{code}: {cause}")
        make(self, code, title, cause, *rest, **named)

    errors.Unsupported.__init__ = noting  # type: ignore[method-assign]
    return refused


def in_child(work: Callable[[], Ending], seconds: float = SECONDS) -> Ending:
    with tempfile.TemporaryDirectory() as folder:
        answer, noise = os.path.join(folder, "answer"), os.path.join(folder, "noise")
        child = os.fork()
        if child == 0:
            _be_child(work, folder, answer, noise)
        try:
            status = _wait(child, seconds)
        finally:  # also when the runner is told to stop: what a test has started does not outlive it
            _end_group(child)
        if os.path.exists(answer):
            with open(answer, encoding="utf-8") as file:
                return Ending(**json.load(file))
        said = ""
        if os.path.exists(noise):  # a child that dies at once has not said anything
            with open(noise, encoding="utf-8", errors="replace") as file:
                said = file.read()[-6000:]
        if status is None:
            return Ending("timeout", said)
        return Ending("crashed", f"wait status {status}\n{said}")


def _be_child(work: Callable[[], Ending], folder: str, answer: str, noise: str) -> None:
    """Never returns."""
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the runner's own handler is not for the tests
        output = os.open(noise, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        faulthandler.enable(file=2)
        faulthandler.register(signal.SIGUSR1, file=2)  # not dump_traceback_later: pytest's own would deadlock
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + EXTRA_MEMORY, used + EXTRA_MEMORY))
        ending = work()
        text = json.dumps(ending.__dict__)
        with open(answer + ".part", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(answer + ".part", answer)
    except BaseException:
        traceback.print_exc()
        os._exit(3)
    os._exit(0)


def processor_seconds(child: int) -> float:
    """CPU time that a running child has used so far."""
    with open(f"/proc/{child}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait(child: int, seconds: float) -> int | None:
    """The child's wait status; None when its time is over."""
    deadline, pause = time.monotonic() + seconds * PATIENCE, 0.002
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        if time.monotonic() > deadline or processor_seconds(child) > seconds:
            os.kill(child, signal.SIGUSR1)  # say where it hangs
            time.sleep(0.2)
            return None
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _end_group(child: int) -> None:
    """The child and what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # waited for already
        if not os.waitpid(child, os.WNOHANG)[0]:  # not yet the head of a group
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
