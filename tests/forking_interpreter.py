"""An interpreter that has loaded torch and forks for each program.   python -m tests.forking_interpreter

In: lines of JSON: command lines of modules, an environment, a folder, a limit in seconds.  Out: for each line the exit
statuses, as JSON; the folder has what program n printed, in `n.out` and `n.err`.

Children share the modules of torch alone: each loads Stator itself. They are interpreters as any other, and end as such.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import sys
from typing import Any

import torch._dynamo  # noqa: F401  (two seconds of each process)


def serve() -> list[str]:
    """Fork for each program; return, in the fork, its command line."""
    for line in sys.stdin:
        batch: dict[str, Any] = json.loads(line)
        children = []
        for number, command in enumerate(batch["commands"]):
            if child := os.fork():
                children.append(child)
                continue
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for place, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(f"{batch['folder']}/{number}.{name}", os.O_WRONLY | os.O_CREAT), place)
            os.environ.clear()
            os.environ.update(batch["environment"])
            signal.alarm(batch["seconds"])  # ends the process: nobody handles it
            return command
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
    sys.exit()


if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of its parent
    sys.argv = serve()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
