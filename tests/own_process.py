"""Work that leaves something behind in its process: done in a child.   work  ->  AssertionError with the child's traceback"""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable


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
