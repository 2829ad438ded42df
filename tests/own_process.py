"""Work that leaves something behind in its process: done in a child.   work  ->  AssertionError with the child's traceback

    in_own_process(work)                     a fork: quick, with everything loaded; it leaves by os._exit
    in_new_interpreters(["-m", "a"], ...)    programs that start threads or fork themselves, side by side; their output
    in_forked_interpreters(["a"], ...)       the same for modules that may find torch loaded: quicker by two seconds each
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent


def in_own_process(work: Callable[[], None]) -> None:
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            try:
                work()
            except BaseException:
                traceback.print_exc(file=said)
                said.flush()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        assert status == 0, said.read() or f"the child ended with status {status}"


def in_new_interpreters(*commands: list[str], seconds: float = 240.0) -> list[str]:
    """Run Python from the root of the project, once for each command line; the output of each."""
    started = [subprocess.Popen([sys.executable, *command], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands]
    try:
        outputs = [child.communicate(timeout=seconds) for child in started]
    finally:
        for child in started:
            child.kill()
    for child, (_, errors) in zip(started, outputs, strict=True):
        assert child.returncode == 0, errors
    return [output for output, _ in outputs]


def in_forked_interpreters(*commands: list[str], seconds: int = 240) -> list[str]:
    """Run modules, each in a fork of an interpreter that has loaded torch and no more; the output of each."""
    ended = forked_interpreters(*commands, seconds=seconds)
    for each in ended:
        assert each.returncode == 0, f"status {each.returncode}: {each.stderr}"
    return [each.stdout for each in ended]


def forked_interpreters(*commands: list[str], seconds: int = 240) -> list[subprocess.CompletedProcess[str]]:
    """The same for modules that may end with another status."""
    server = _forking_interpreter()
    assert server.stdin and server.stdout
    with tempfile.TemporaryDirectory() as folder:
        batch = {"commands": commands, "folder": folder, "environment": dict(os.environ), "seconds": seconds}
        server.stdin.write(json.dumps(batch) + "\n")
        server.stdin.flush()
        statuses = json.loads(server.stdout.readline())
        return [subprocess.CompletedProcess(command, status, *(Path(folder, f"{number}.{name}").read_text() for name in ("out", "err")))
                for number, (command, status) in enumerate(zip(commands, statuses, strict=True))]


@functools.cache
def _forking_interpreter() -> subprocess.Popen[str]:
    server = subprocess.Popen([sys.executable, "-m", "tests.forking_interpreter"], cwd=ROOT, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True)
    atexit.register(server.communicate)  # it ends where its input does
    return server
