"""Fork, spawn, DataLoader workers, and leaving the interpreter while compiled functions live."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest
import torch

import stator


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


compiled_double = stator.compile(double, backend="eager")


class Doubled(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return compiled_double(torch.full((3,), float(index)))


def answer(connection: Any) -> None:
    connection.send([compiled_double(torch.arange(n, dtype=torch.float32)).tolist() for n in (3, 4, 3)])
    connection.close()


EXPECTED = [double(torch.arange(n, dtype=torch.float32)).tolist() for n in (3, 4, 3)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_process(method: str) -> None:
    """A child calls what its parent compiled (fork), or compiles for itself (spawn)."""
    compiled_double(torch.zeros(3))
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    child = context.Process(target=answer, args=(there,))
    child.start()
    assert here.poll(120), "the child hangs"
    assert here.recv() == EXPECTED
    child.join(60)
    assert child.exitcode == 0


def test_fork_while_another_thread_compiles() -> None:
    """The child of a fork has no thread that would ever let go of the compiler's lock."""
    inside, leave = threading.Event(), threading.Event()

    def slow_backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        inside.set()
        leave.wait(60)
        return gm.forward

    compiling = threading.Thread(target=lambda: stator.compile(lambda x: x + 3, backend=slow_backend)(torch.ones(2)))
    compiling.start()
    assert inside.wait(60)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=answer, args=(there,))
    try:
        child.start()
        assert here.poll(60), "the child waits for a lock that nobody holds"
        assert here.recv() == EXPECTED
    finally:
        leave.set()
        compiling.join(60)
        child.kill()
        child.join(60)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(workers: int) -> None:
    compiled_double(torch.zeros(3))
    loader = torch.utils.data.DataLoader(Doubled(), batch_size=4, num_workers=workers)
    got = torch.cat(list(loader))
    assert torch.equal(got, torch.stack([double(torch.full((3,), float(i))) for i in range(8)]))


def run_script(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    return subprocess.run([sys.executable, *options, "-c", textwrap.dedent(text)], capture_output=True, text=True,
                          timeout=180, env=environment, check=False)


EXITS = {
    "globals": "keep = compiled",
    "cycle": "compiled.me = compiled; torch.keep = compiled",
    "finalizer calls it": """
        class Last:
            def __del__(self):
                print('last', float(compiled(torch.ones(2)).sum()))
        torch.keep = Last()
        """,
    "atexit calls it": "import atexit; atexit.register(lambda: print('last', float(compiled(torch.ones(2)).sum())))",
    "a thread is calling": """
        import threading
        threading.Thread(target=lambda: [compiled(torch.ones(2)) for _ in range(2000)]).start()
        """,
    "an exit inside": """
        def leave(x):
            y = x + 1
            raise SystemExit(0)
        stator.compile(leave, backend='eager')(torch.ones(2))
        """,
}


@pytest.mark.parametrize("how", EXITS)
def test_interpreter_exit(how: str) -> None:
    script = textwrap.dedent("""
        import torch, stator
        def fn(x):
            y = x + 1
            stator.graph_break()
            return y * 2
        compiled = stator.compile(fn, backend='eager')
        print(float(compiled(torch.ones(2)).sum()))
    """) + textwrap.dedent(EXITS[how])
    done = run_script(script, "-X", "faulthandler")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[0] == "8.0"
    assert "Fatal" not in done.stderr and "Segmentation" not in done.stderr
    if "last" in EXITS[how] and how.startswith("atexit"):
        assert done.stdout.splitlines()[-1] == "last 8.0"
