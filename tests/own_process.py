"""Work that leaves something behind in its process: done in a child.   work  ->  AssertionError with the child's traceback

    in_own_process(work)                     a fork: quick, with everything loaded; it leaves by os._exit
    in_new_interpreters(["-m", "a"], ...)    programs that start threads or fork themselves, side by side; their output
"""

from __future__ import annotations

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
