"""Compile a graph in another process.   a graph, settings  ->  Inductor's caches filled, while calls run eagerly

In: a captured graph.  Out: `Deferred` until a worker process has compiled the graph; then the caches of Inductor and
AOTAutograd hold it, and the caller compiles it from there.

    parent   writes graph, fakes, settings of torch and of its compilers to an unnamed file; starts a worker; polls it
    worker   reads the file, compiles, exits: 0, or with its reason as the last line of its output

One worker runs at a time, at low priority, in a session of its own: Ctrl-C does not reach it.  It ends itself when its
parent is gone, and is killed when the parent exits.  A fork inherits no job.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from stator.backends.background.graph_pickling import ambient_state, packed
from stator.backends.graph_key import Contents, Key, Unkeyed, graph_key
from stator.settings.options import Settings

NICE = 10  # added to the priority of a worker
_WORKER = "from stator.backends.background.worker import work; work()"
_PARENT = "STATOR_WORKER_OF"  # environment variable: the process that a worker belongs to


class Deferred(Exception):
    """The graph is not compiled yet: the call runs eagerly."""

    def __init__(self, job: Job) -> None:
        super().__init__("another process compiles it")
        self.job = job


@dataclass(eq=False)
class Job:
    """The compilation of one graph in another process."""

    nodes: int
    data: bytes = b""
    failure: str = ""
    done: bool = False
    lost: bool = False  # of a process from which this one was forked
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    process: Any = None
    output: Any = None

    def finished(self) -> bool:
        """Whether the worker has ended; starts it where it has waited for another one."""
        with _lock:
            if not self.done and self.process is None and not any([each.is_running for each in _jobs.values()]):
                start(self)
            if not self.done and self.process is not None and (status := self.process.poll()) is not None:
                self.end(status)
        return self.done

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.done and self.process.poll() is None

    def end(self, status: int) -> None:
        self.done, self.seconds = True, time.monotonic() - self.began
        if status < 0:
            self.failure = f"it was killed by {signal.Signals(-status).name}"
        elif status:
            self.output.seek(0)
            lines = self.output.read().decode(errors="replace").strip().splitlines()
            self.failure = lines[-1] if lines else f"it ended with status {status}"
        self.output.close()

    def fail(self, why: str) -> None:
        self.done, self.failure, self.data = True, why, b""


_jobs: dict[Key, Job] = {}
_lock = threading.RLock()
_warming: threading.Thread | None = None


def require_compiled(gm: fx.GraphModule, inputs: Sequence[Any], settings: Settings,
                     grad_enabled: bool) -> None:
    """Raise `Deferred` until another process has compiled this graph."""
    state = ambient_state()
    options = tuple(sorted([(name, repr(value)) for name, value in settings.options.items()]))
    try:
        key: Key = (graph_key(Contents(gm)), settings.mode, options, repr(settings.regions), grad_enabled, repr(state))
    except Unkeyed as why:
        job = Job(len(gm.graph.nodes))
        job.fail(f"the graph cannot be compared: {why}")
        raise Deferred(job) from None
    with _lock:
        job = _jobs.setdefault(key, Job(len(gm.graph.nodes)))
        if not job.done and not job.data:
            try:
                job.data = packed(gm, list(inputs), settings, grad_enabled, state)
            except Exception as error:
                job.fail(f"the graph cannot be sent to another process: {type(error).__name__}: {error}")
            warm_up()
    if not job.finished() or job.failure:
        raise Deferred(job)


def forget() -> None:
    """End all jobs."""
    with _lock:
        for job in _jobs.values():
            if job.is_running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(job.process.pid, signal.SIGKILL)  # with the compilers that it has started
                job.process.wait()
        _jobs.clear()


def forget_after_fork() -> None:
    global _lock
    for job in _jobs.values():
        job.lost = True
    _jobs.clear()
    _lock = threading.RLock()


def wait_for_imports() -> None:
    """A child that is forked while another thread imports a module could never import it."""
    if _warming is not None and _warming is not threading.current_thread():
        _warming.join()


atexit.register(forget)
os.register_at_fork(before=wait_for_imports, after_in_child=forget_after_fork)


def start(job: Job) -> None:
    """Start the worker of a job."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([each for each in sys.path if each]),
                   _PARENT: str(os.getpid())}
    environment.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max(1, (os.cpu_count() or 2) // 2)))
    try:
        job.output = tempfile.TemporaryFile()
        with tempfile.TemporaryFile() as given:
            given.write(job.data)
            given.seek(0)
            job.process = subprocess.Popen([sys.executable, "-c", _WORKER], stdin=given, stdout=job.output,
                                           stderr=subprocess.STDOUT, env=environment, start_new_session=True)
    except Exception as error:  # no memory, no place on disk, no interpreter of its own
        job.fail(f"it could not be started: {error}")


def warm_up() -> None:
    """Import Inductor and let it look at the processor, in a thread: the caches are read sooner then."""
    global _warming
    if _warming is None:
        _warming = threading.Thread(target=_warm_up, name="stator imports", daemon=True)
        _warming.start()


def _warm_up() -> None:
    with contextlib.suppress(Exception):  # whoever needs it meets the error
        importlib.import_module("torch._inductor.compile_fx")
        importlib.import_module("torch._inductor.codecache").torch_key()
        importlib.import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()
