"""Run a script once for each rank of a fake process group.   a script, 512 ranks  ->  the result of each, in order

Ranks are forked from one process where the script reads its rank for the first time, from the environment or by
`init_process_group`.  All that comes before, imports above all, is done once.  Where that process cannot be forked any
more (it has threads, children or a GPU), ranks are forked before the script begins.  As many ranks run at a time as
there are cores.
"""

from __future__ import annotations

import collections
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import stator
from stator import events

Result = list[str]  # collectives of one rank
Collectives = Callable[[list[events.Event]], Result]
_VARIABLES = frozenset({"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"})
_PROCESSES = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system"})


def results(script: str, size: int, collectives: Collectives) -> list[Result | None]:
    """The collectives of each rank, up to the first one that differs; None at the end where a rank fails."""
    _load_tracer()
    found = list(_results(script, size, collectives, late=True))
    return list(_results(script, size, collectives, late=False)) if found[-1] is None else found


def _load_tracer() -> None:
    """Load what all ranks need before they are forked."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    importlib.import_module("torch.distributed._functional_collectives")
    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        stator.compile(_first_collective, backend="eager")(torch.ones(2))
        dist.destroy_process_group()
        stator.reset()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of its parent


def _first_collective(x: object) -> object:
    import torch.distributed as dist
    dist.all_reduce(x)  # type: ignore[arg-type]
    return x * dist.get_world_size()  # type: ignore[operator]


def _results(script: str, size: int, collectives: Collectives, late: bool) -> Iterator[Result | None]:
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            ranks = Ranks(script, size, collectives, Path(folder))
            ranks.run() if late else ranks.fork_all()
        os.waitpid(child, 0)
        first: Result | None = None
        for rank in range(size):
            # Where the script never reads its rank, the first result is that of every rank.
            path = next((each for each in (Path(folder, str(rank)), Path(folder, "all")) if each.exists()), None)
            found = json.loads(path.read_text()) if path is not None else None
            first = found if rank == 0 else first
            yield found
            if found is None or found != first:
                return


class Ranks:
    """The process from which ranks are forked, and each of them."""

    def __init__(self, script: str, size: int, collectives: Collectives, folder: Path) -> None:
        self.script, self.size, self.collectives, self.folder = script, size, collectives, folder
        self.rank: int | None = None
        self.plain = type(os.environ)

    def run(self) -> NoReturn:
        """Run the script, and end the process."""
        import torch.distributed as dist
        begin = dist.init_process_group

        def init_process_group(*args: object, **kwargs: object) -> None:
            from torch.testing._internal.distributed.fake_pg import FakeStore
            self.read()
            begin("fake", store=FakeStore(), rank=self.rank or 0, world_size=self.size)

        status = 1
        try:
            dist.init_process_group = init_process_group
            os.environ.update(WORLD_SIZE=str(self.size), LOCAL_WORLD_SIZE=str(self.size), MASTER_ADDR="localhost",
                              MASTER_PORT="29500")
            if self.rank is None:
                self.watch()
            with events.record() as log:
                try:
                    runpy.run_path(self.script, run_name="__main__")
                except SystemExit as left:
                    if left.code not in (None, 0):
                        raise
            path = self.folder / ("all" if self.rank is None else str(self.rank))
            path.write_text(json.dumps(self.collectives(log)))
            status = 0
        except BaseException as error:
            print(f"stator: rank {self.rank or 0}: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(status)

    def watch(self) -> None:
        """Notice the first read of a rank."""
        plain = self.plain

        class Watched(plain):  # type: ignore[misc, valid-type]
            def __getitem__(environment, key: str) -> str:  # noqa: N805
                if key in _VARIABLES:
                    self.read()
                return str(plain.__getitem__(environment, key))

            def __iter__(environment) -> Iterator[str]:  # noqa: N805
                self.read()
                return iter(plain.__iter__(environment))

        def on_audit(name: str, args: object) -> None:
            if name in _PROCESSES and self.rank is None:
                os._exit(1)  # a child inherits the environment

        os.environ.__class__ = Watched
        sys.addaudithook(on_audit)

    def read(self) -> None:
        """Fork the ranks here; each of them goes on."""
        if self.rank is not None:
            return
        self.rank = -1  # the audit hook sees these forks too
        os.environ.__class__ = self.plain
        if _can_be_forked():
            self.fork_all(goes_on=True)
        else:
            os._exit(1)

    def fork_all(self, goes_on: bool = False) -> None:
        """Fork ranks, as many at a time as there are cores.  Only ranks return."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        running: collections.deque[tuple[int, int]] = collections.deque()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        for rank in range(self.size):
            child = os.fork()
            if child == 0:
                self.begin(rank)
                if goes_on:
                    return
                self.run()
            running.append((rank, child))
            if len(running) >= cores:
                self.wait(running)
        while running:
            self.wait(running)
        os._exit(0)

    def wait(self, running: collections.deque[tuple[int, int]]) -> None:
        """Wait for the first of some ranks; where it fails or differs from rank 0, end the others and this process."""
        rank, child = running.popleft()
        _, status = os.waitpid(child, 0)
        if status or (self.folder / str(rank)).read_text() != (self.folder / "0").read_text():
            for _, other in running:
                os.kill(other, signal.SIGKILL)
                os.waitpid(other, 0)
            os._exit(1)

    def begin(self, rank: int) -> None:
        import torch
        self.rank = rank
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        torch.set_num_threads(1)  # threads of OpenMP do not live on in a fork


def _can_be_forked() -> bool:
    import torch
    return threading.active_count() == 1 and not (torch.cuda.is_available() and torch.cuda.is_initialized())
